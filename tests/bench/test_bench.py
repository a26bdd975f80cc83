"""`evaluator bench`: two independent ways agree on the numbers; rates, shares and noise by hand; wrong files in one line."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaluator.bench.backends import Ceilings, EngineBackend, serve
from evaluator.bench.compare import differing, ratios
from evaluator.bench.counter import Counter
from evaluator.bench.function import read_record
from evaluator.bench.job import BenchJob, BenchWorkload
from evaluator.bench.measure import noise, record
from evaluator.bench.process import BackendProcess
from evaluator.cli.bench import command, show
from evaluator.scoring.encodings import Encodings
from evaluator.scoring.loaded_tasks import Renderer, load_tasks
from evaluator.scoring.model_setup import source_of
from evaluator.scoring.prepare import ask_model, prepare_model
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.benches import Hardware, keep, measured_in
from evaluator_serving.devices import bfloat16_units
from evaluator_serving.errors import EngineError, InputError
from tests.own_tasks import own_pairs
from tests.tiny_models import tiny_model

CPU = Hardware("cpu", "a processor", 2)


pytestmark = pytest.mark.usefixtures("own_cache")


def served(job: BenchJob, *lines: str) -> list[dict[str, Any]]:
    """What a way's process would say, without the process."""
    answers = io.StringIO()
    serve(job, iter(lines), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_engine_and_loop_agree_and_count_the_same_work(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.nn.Embedding, "forward", torch.nn.Embedding.forward)  # what is counted is undone
    model = tiny_model(family, tmp_path / family)
    known: dict[str, Any] = {"model": str(model), "task": "gest-demo", "limit": 16, "slices": 2}
    ready, *slices = served(BenchJob(backend="engine", engine="transformers", **known), "0", "1", "reload")
    reload = slices.pop()["reload"]
    _, *loop = served(BenchJob(backend="transformers-loop", engine="", **known), "0", "1")
    assert ready["sentences"] == [8, 8]
    assert reload > 0
    for one, other in zip(slices, loop, strict=True):
        assert one["numbers"].keys() == other["numbers"].keys()
        for key, values in one["numbers"].items():
            assert values == pytest.approx(other["numbers"][key], abs=1e-4)
        assert min(one["computed"], one["tokens"]) > 0
        assert 0 < one["passes"] < other["passes"]
        assert 0 < one["forward"] < one["wall"]
    assert sum(one["tokens"] for one in slices) == ready["model"]["tokens"]
    parameters = sum(p.numel() for p in _load(family, model).parameters())
    assert ready["model"]["parameters"] == pytest.approx(parameters, rel=0.05)


def test_plans_and_benches_count_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pairs of texts that begin alike, which engines compute in common."""
    import torch

    monkeypatch.setattr(torch.nn.Embedding, "forward", torch.nn.Embedding.forward)  # what is counted is undone
    model = tiny_model("gpt2", tmp_path / "gpt2")
    places = ("work", "people", "children")
    lines = [f"The man of {place} is strong and tired,The man of {place} is weak not happy" for place in places]
    (tmp_path / "own.csv").write_text("\n".join(["sent_more,sent_less", *lines]) + "\n")
    own = own_pairs(tmp_path / "own.csv")
    spec = RunSpec((ModelSpec(str(model), "transformers"),), (own,), tmp_path / "run")
    tasks = load_tasks(spec)
    renderer = Renderer(tasks, "default")
    unencoded = ask_model(spec.models[0], source_of(spec.models[0]), spec, tasks, renderer)
    made = prepare_model(unencoded, spec, tasks, Encodings())
    requests = renderer.requests(made.heads)
    work = BenchWorkload(spec, tuple(tasks), made, requests, (tuple(requests),), (len(lines),))
    way = EngineBackend(
        BenchJob(backend="engine", engine="transformers", model=str(model), task=own.name, limit=3), work, Counter()
    )
    way.start()
    _, took = way.score(work.slices[0])
    assert took["planned"] == made.summary.counts.tokens < took["tokens"]


def _load(family: str, model: Path) -> Any:
    import transformers

    return (transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM).from_pretrained(model)


def worker(engine: str, walls: list[float], **answer: Any) -> BackendProcess[BenchJob]:
    """A way of which all is known: 10 and 10 sentences, 1,000 tokens, a body of 5 and a head of 2 million numbers."""
    job = BenchJob(
        backend="engine" if engine else "transformers-loop", engine=engine, model="m", task="gest", limit=20, slices=2
    )
    made = BackendProcess(job, None, seconds=12.0)  # type: ignore[arg-type]
    model = {"spec": "m", "revision": "r", "parameters": 7_000_000, "weights": 28_000_000, "heads": ["causal"]}
    model |= {"body": 5_000_000, "vocabulary_head": 2_000_000, "reads": 40, "tokens": 1000}
    made.ready = {"model": model, "sentences": [10, 10], "start": {"fetch": 0.0, "engine": 3.0, "verify": 1.0}}
    plain = {
        "cpu": 1.0,
        "encode": 0.5,
        "forward": 1.0,
        "write": 0.25,
        "host": 1 << 30,
        "tokens": 500,
        "planned": 400,
        "numbers": {"q": [-1.0]},
    }
    made.slices = {n: {**plain, "wall": wall, **answer} for n, wall in enumerate(walls)}
    return made


@pytest.mark.parametrize(
    ("dtype", "moved"), [("float64", 7e6 * 8), ("bfloat16", 7e6 * 2), ("bf16x2", 7e6 * 2), ("int8", 5e6 + 2e6 * 4)]
)
def test_weights_are_read_in_their_own_size(dtype: str, moved: float) -> None:
    """int8 is of the layers' matrices; the vocabulary's stays as it was."""
    one = worker("onnx", [2.0, 3.0], passes=4, computed=600)
    one.job = replace(one.job, dtype=dtype)
    (told,) = record([one], [{"matrix_gflop_s": 100.0, "memory_gb_s": 10.0}], {}, CPU)["ways"]
    assert told["share_of_memory_bandwidth"] == pytest.approx(8 * moved / 2.0 / 1e9 / 10.0, rel=1e-3)


@pytest.mark.parametrize(("dtype", "peak"), [("float32", 100.0), ("bfloat16", 400.0), ("bf16x2", 400.0)])
def test_products_of_bfloat16_are_compared_with_their_own_peak(dtype: str, peak: float) -> None:
    one = worker("transformers", [2.0, 3.0])
    one.job = replace(one.job, dtype=dtype)
    rates = {"matrix_gflop_s": 100.0, "bfloat16_gflop_s": 400.0, "memory_gb_s": 10.0}
    (told,) = record([one], [rates], {}, CPU)["ways"]
    assert told["share_of_matrix_peak"] == pytest.approx(2 * (1000 * 5e6 + 40 * 2e6) / 2.0 / 1e9 / peak, rel=1e-3)


def test_rates_and_shares_by_hand() -> None:
    fast = worker("onnx", [2.0, 3.0], passes=4, computed=600)
    slow = worker("", [10.0, 10.0], numbers={"q": [-1.5]})
    broken = BackendProcess(BenchJob(backend="engine", engine="vllm", model="m", task="gest", limit=20), None, error="no vllm")  # type: ignore[arg-type]
    ceilings = [{"matrix_gflop_s": 100.0, "memory_gb_s": 10.0}, {"matrix_gflop_s": 90.0, "memory_gb_s": 11.0}]
    made = record([fast, slow, broken], ceilings, {id(fast): 1.5}, CPU)
    one, other, none = made["ways"]
    assert (one["sentences_s"], one["tokens_s"]) == (4.0, 200.0)
    assert one["slices_sentences_s"] == [5.0, 3.333]
    assert one["gflop_s"] == pytest.approx(2 * (1000 * 5e6 + 40 * 2e6) / 2.0 / 1e9, rel=1e-3)
    assert one["share_of_matrix_peak"] == pytest.approx(one["gflop_s"] / 100, rel=1e-3)
    assert one["share_of_memory_bandwidth"] == pytest.approx(8 * 7e6 * 4 / 2.0 / 1e9 / 11.0, rel=1e-3)
    assert one["start"] == {"fetch": 0.0, "engine": 3.0, "verify": 1.0, "process": 7.0, "first": 4.0, "next": 1.5}
    assert one["planning_tokens_s"] == pytest.approx(800 / 2.5)
    assert (other["sentences_s"], other["max_difference"]) == (1.0, 0.5)
    assert "start" not in other
    assert none["error"] == "no vllm"
    (kept,) = measured_in(made)
    assert (kept.engine, kept.tokens_s, kept.process, kept.first, kept.next) == ("onnx", 320.0, 7.0, 4.0, 1.5)
    assert keep(made).is_file()
    with pytest.raises(EngineError, match="vllm: no vllm"):
        record([broken], ceilings, {}, CPU)


def test_ratios_and_their_noise() -> None:
    assert noise([10.0, 10.0]) == 0.0
    assert noise([9.0, 11.0]) == pytest.approx(0.1)  # standard deviation 1.414 of the values, 1 of their mean
    before, after = (record([worker("onnx", walls)], [], {}, CPU) for walls in ([4.0, 4.1], [2.0, 2.05]))
    (found,) = ratios(before, after)
    assert found.ratio == pytest.approx(2.0, rel=1e-3)
    assert found.beyond_noise
    (same,) = ratios(before, record([worker("onnx", [4.0, 4.2])], [], {}, CPU))
    assert not same.beyond_noise
    assert list(differing(before, before)) == []
    moved = after | {"hardware": {**after["hardware"], "name": "another"}}
    assert next(differing(before, moved)).startswith("hardware name differs: a processor and another")
    with pytest.raises(InputError, match="no backend ran in both"):
        list(ratios(before, record([worker("vllm", [1.0])], [], {}, CPU)))


def test_commands_refuse_what_is_no_bench(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    with pytest.raises(InputError, match="is not a benchmark"):
        read_record(wrong)
    with pytest.raises(InputError, match="can't be read"):
        read_record(tmp_path / "none.json")
    made = record([worker("onnx", [4.0, 4.1])], [], {}, CPU)
    still = {"ways": [{**made["ways"][0], "sentences_s": 0.0}]}
    for part in (
        {"ways": 3},
        {"ways": [3]},
        {"ways": [{}]},
        still,
        {"hardware": {}},
        {"system": {"versions": []}},
        {"work": None},
    ):
        wrong.write_text(json.dumps(made | part))
        with pytest.raises(InputError, match="is not a benchmark of this version"):
            read_record(wrong)
    wrong.write_text("[" * 100_000)
    with pytest.raises(InputError, match="can't be read as a benchmark"):
        read_record(wrong)
    done = CliRunner().invoke(command, ["gpt2", "--against", "abacus"])
    assert isinstance(done.exception, InputError)
    assert "transformers-loop, lm-eval" in str(done.exception)
    files = []
    for number, walls in enumerate(([4.0, 4.1], [2.0, 2.05])):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(record([worker("onnx", walls)], [], {}, CPU)))
    told = CliRunner().invoke(command, ["compare", *map(str, files)])
    assert told.exit_code == 0, told.output
    assert "onnx: 2.5 to 4.9 sentences/s, 2.00 times as fast" in told.stdout


def test_what_nothing_here_can_measure_is_refused_before_a_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(job: BenchJob) -> BackendProcess[BenchJob]:
        raise AssertionError(job)

    monkeypatch.setattr(BackendProcess, "start", started)
    model = str(tiny_model("gpt2", tmp_path / "gpt2"))
    (tmp_path / "empty").mkdir()
    for words, told in (
        (["http://127.0.0.1:9/v1#gpt"], "runs on a server; bench measures this machine"),
        ([model, "--engine", "openai"], "run on a server"),
        ([model, "--engine", "abacus"], "unknown engine 'abacus'"),
        ([model, "--task", "no-such-task"], "no-such-task"),
        ([model, "--task", "gest-mt"], "gest-mt runs no model, so there is nothing to measure"),
        ([str(tmp_path / "empty"), "--task", "gest-demo"], "empty"),
        ([model, "--task", "gest-demo", "--device", "cuda:9"], "no device 'cuda:9' here"),
        (
            [model, "--task", "gest-demo", "--samples", "8", "--slices", "9"],
            "8 sentences of gest-demo can't be cut into 9 slices",
        ),
        ([model, "--task", "gest-demo", "--json", f"{model}/config.json/x"], "config.json/x can't be written ("),
    ):
        done = CliRunner().invoke(command, words)
        assert isinstance(done.exception, InputError), (words, done.exception)
        assert told in str(done.exception)
    with pytest.raises(AssertionError, match="ceilings"):  # what can be measured is
        CliRunner().invoke(command, [model, "--task", "gest-demo", "--engine", "onnx"], catch_exceptions=False)


def test_tables_fit_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fast = worker("a-plug-in-with-a-long-name", [1.0, 3.0], passes=4, computed=600)
    broken = BackendProcess(
        BenchJob(backend="engine", engine="vllm", model="m", task="gest", limit=20), None, error="no vllm " * 30
    )  # type: ignore[arg-type]
    made = record([fast, worker("", [1e4, 1e4]), broken], [{"matrix_gflop_s": 1e5, "memory_gb_s": 1e3}], {}, CPU)
    made["model"]["spec"] = "an-organisation/a-language-model-with-a-very-long-name-70B-Instruct-v0.1"
    made["hardware"]["name"] = "A Processor(R) of an Uncommonly Long Name, its Speed and its Number of Cores and More"
    way = made["ways"][0]
    way |= {"sentences_s": 12345.6, "tokens_s": 1234567.0, "noise": 0.28, "peak_gib": 123.45, "max_difference": 3e-06}
    way["start"] |= {"process": 1234.5}
    way["seconds"] |= {"encode": 123.45, "forward": 1234.56, "write": 123.45}
    show(made)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(lines).split()
    for number in ("12345.6", "28%", "1,234,567", "123.45", "1238.5", "1234.56", "3e-06", "transformers-loop"):
        assert number in told


def test_a_way_that_cannot_start_is_told_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-hub-token")
    failed = BackendProcess.start(BenchJob(backend="engine", engine="abacus", model="m", task="planted-hub-token", limit=8))
    failed.close()
    assert failed.error is not None
    assert "unknown task '[HF_TOKEN]'" in failed.error
    failed.slice(0, "0")
    assert failed.slices == {}


def test_a_machine_whose_threads_are_not_told_has_rates() -> None:
    """On a GPU ways have no number of threads."""
    rates = Ceilings(BenchJob(backend="ceilings", engine="", model="m", task="gest", limit=8, threads=0)).measure()
    assert rates.keys() >= {"matrix_gflop_s", "memory_gb_s"}
    assert ("bfloat16_gflop_s" in rates) == (bfloat16_units() is not None)
    assert min(rates.values()) > 0
