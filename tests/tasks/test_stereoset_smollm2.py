"""StereoSet on SmolLM2: a sample of the public set against a plain float64 loop, and the vLLM engine against both."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.demo import demo_model
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks.stereoset import stereoset
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from tests.float64_loop import Loop

EXAMPLES = 16


@pytest.fixture(scope="module")
def model() -> str:
    try:
        return str(demo_model())
    except InputError as error:
        pytest.skip(str(error))


def scored(model: str, engine: str, data: Path, out: Path) -> tuple[Run, pl.DataFrame]:
    spec = RunSpec((ModelSpec(model, engine=engine),), (stereoset("en"),), out, data=DataSource(data), limit=EXAMPLES)
    run = execute(spec).run
    return run, scores_of(run, "stereoset-en")


@pytest.mark.slow
def test_equals_a_plain_loop_token_by_token(tmp_path: Path, data_dir: Path, model: str) -> None:
    run, scores = scored(model, "transformers", data_dir, tmp_path / "run")
    assert set(scores["template"]) == {"intrasentence", "intersentence"}
    assert scores.height == EXAMPLES
    folder = resolve(model).path  # converted from the package's GGUF file
    loop = Loop(folder, "AutoModelForCausalLM")
    samples = stereoset("en").load_limited(DataSource(data_dir), EXAMPLES).frame
    answers = run.answers(run.models[0])
    table = run.table("stereoset-en", ["causal"])
    compared = 0
    for row in samples.iter_rows(named=True):
        parts = table.filter(sample=row["sample"])
        end = "" if row["context"][-1] in ".!?" else "."
        texts = {
            "sentence": row["sentences"],
            "alone": row["sentences"],
            "joined": [f"{row['context']}{end} {text}" for text in row["sentences"]],
            "context": [row["context"] + end],
        }
        for part, request in parts.select("part", "request").iter_rows():
            for candidate, text in enumerate(texts[part]):
                ids = [loop.tokenizer.bos_token_id, *loop.ids(text)]
                logs = loop.log_probs(input_ids=ids)
                expected = [float(logs[at - 1, ids[at]]) for at in range(1, len(ids))]
                found = answers.filter(request=request, candidate=candidate)
                assert found["tokens"][0].to_list() == ids[1:]
                assert found["logprobs"][0].to_list() == pytest.approx(expected, abs=1e-4)
                compared += len(expected)
    assert compared > 400


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_agrees(tmp_path: Path, data_dir: Path, model: str) -> None:
    frames = [scored(model, engine, data_dir, tmp_path / engine)[1] for engine in ("transformers", "vllm")]
    columns: list[Any] = ["x_stereotype", "x_anti", "x_unrelated", "mean_context"]
    ours, theirs = (frame.select("sample", pl.col(*columns[:3]).log(), columns[3]) for frame in frames)
    assert ours["sample"].to_list() == theirs["sample"].to_list()
    for column in columns:
        difference = (ours[column] - theirs[column]).drop_nulls().abs()
        assert difference.len() > 0
        assert difference.max() < 1e-4  # type: ignore[operator]
