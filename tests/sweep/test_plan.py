"""The plan: what fits, what is refused with the number missing, times and cost."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.scoring.driver import Prepared, prepare
from evaluator.scoring.failures import Failures
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.benches import MeasuredSpeed, Rates, Speeds
from evaluator.sweep.hardware import Fleet, Node, parse_fleet
from evaluator.sweep.planning import plan as plan_module
from evaluator.sweep.planning.driver_time import ProgramTime
from evaluator.sweep.planning.plan import Needs, make_plan, model_needs
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.tokenizer import load_tokenizer
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom, own_pairs
from tests.tiny_models import tiny_model

GPU = parse_fleet("1x8xH100-80")


@pytest.fixture(autouse=True)
def engines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program itself takes no time here: test_driver_time.py has what it takes."""
    monkeypatch.setattr(plan_module, "PROGRAM_TIME", ProgramTime(request=0, model=0, commit=0, worker=0))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    folder = tmp_path_factory.mktemp("plan")
    samples = write_samples(folder / "own.csv", [(s, g) for s, g in sentences(20) if len(s) < 60])
    model = tiny_model("gpt2", folder / "gpt2")
    spec = RunSpec((ModelSpec(str(model), "transformers"),), (custom(samples),), folder / "run")
    (made,) = prepare(spec).models
    return made


def needs_of(model: PreparedModel) -> Needs:
    return model_needs(model, model.summary.counts, GPU)


def test_counts_are_after_deduplication(prepared: PreparedModel) -> None:
    needs = needs_of(prepared)
    assert prepared.total == 2 * needs.forwards, "both generative templates are read from one forward pass"
    assert needs.demand.tokens == sum(max(row.length for row in item.rows) for item in prepared.encoded[1::2])
    assert [str(allocation.placement) for allocation in needs.allocations] == ["1/8", "1/4", "1/2", "1"]


def test_a_beginning_that_both_texts_of_a_pair_have_counts_once(tmp_path: Path) -> None:
    """And as often as there are pairs: beginnings that different pairs have in common are counted for each."""
    pairs = [
        ("the man is tired and happy", "the man is happy and tired", "the man is"),
        ("She said the doctor feels strong", "She said the nurse is weak", "She said the"),
    ]
    rows = ["sent_more,sent_less", *(f"{more},{less}" for more, less, _ in pairs)]
    (tmp_path / "own.csv").write_text("\n".join(rows) + "\n")
    model = tiny_model("gpt2", tmp_path / "gpt2")
    spec = RunSpec((ModelSpec(str(model), "transformers"),), (own_pairs(tmp_path / "own.csv"),), tmp_path / "run")
    (made,) = prepare(spec).models
    tokenizer = load_tokenizer(made.source)
    more, less, common = (sum(len(tokenizer(text).input_ids) for text in texts) for texts in zip(*pairs, strict=True))
    # A text is computed behind end-of-text, without its last token; what is common with end-of-text in front.
    assert needs_of(made).demand.tokens == more + less - (common + len(pairs))


def sized(prepared: PreparedModel, parameters: float, engine: str = "vllm") -> PreparedModel:
    prepared.source.config.num_attention_heads = 64
    return replace(
        prepared,
        source=replace(prepared.source, parameters=int(parameters)),
        info=replace(prepared.info, engine=engine, dtype="bfloat16"),
        spec=replace(prepared.spec, options=EngineOptions(dtype="bfloat16")),
    )


def test_tensor_parallel_size_is_the_smallest_that_fits(prepared: PreparedModel) -> None:
    """70 B parameters in bfloat16 are 140 GB: two 80 GiB GPUs hold 147 GiB of which weights and buffers fit."""
    sizes = {p: needs_of(sized(prepared, p)).allocations[-1].placement.tensor_parallel for p in (7e9, 70e9, 180e9)}
    assert sizes == {7e9: 1, 70e9: 2, 180e9: 8}


def test_times_and_cost_follow_the_given_throughput(prepared: PreparedModel) -> None:
    slow, fast = (make_plan(Prepared((), (prepared,), Failures()), GPU, Speeds(t)) for t in (1.0, 10.0))
    assert slow.needs[0].allocations[-1].score == pytest.approx(10 * fast.needs[0].allocations[-1].score)
    assert replace(slow, price=2.0).cost == pytest.approx(2.0 * 8 * slow.schedule.makespan / 3600)


def test_conditions_of_a_model_are_planned_with_one_load(prepared: PreparedModel) -> None:
    """They share what is loaded; a model of other options doesn't."""
    one, again, other = (
        replace(prepared, spec=replace(prepared.spec, label=name, options=options))
        for name, options in (("m", EngineOptions()), ("m+fair", EngineOptions()), ("other", EngineOptions(batch_tokens=64)))
    )
    device = Fleet((Node("cpu", "CPU worker", 1, 1 << 34),))
    plan = make_plan(Prepared((), (one, again, other), Failures()), device, Speeds(1.0))
    first, second, third = (need.allocations[-1] for need in plan.needs)
    assert [need.alike for need in plan.needs] == ["m", "m", "other"]
    assert plan.seconds == pytest.approx(first.load + first.score + second.score + third.load + third.score)


def test_which_models_a_plan_has_measurements_of(prepared: PreparedModel) -> None:
    one = MeasuredSpeed("transformers", "float32", 0, 1000, 4000, 50.0, 1.0, 2.0, 1.0, "2026-01-01T00:00:00Z")
    ready = Prepared((), (prepared,), Failures())
    card = GPU.nodes[0].card
    plan = make_plan(ready, GPU, Speeds(None, 0, {card: Rates((one,))}))
    assert plan.measured == (prepared.name,)
    assert plan.startup == pytest.approx(1.0 + 2.0 - 1.0)
    assert plan.seconds == plan.schedule.makespan + plan.startup
    assert make_plan(ready, GPU, Speeds(None, 0, {card: Rates((replace(one, dtype="int8"),))})).measured == ()


def test_plan_command(prepared: PreparedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evaluator.cli.plan import command

    path = tmp_path / "SWEEP.toml"
    samples = write_samples(tmp_path / "own.csv", sentences(8))
    path.write_text(
        f'tasks = ["gest"]\nout = "{tmp_path / "run"}"\nsamples = "{samples}"\n'
        f'[[models]]\nmodel = "{prepared.source.path}"\nengine = "transformers"\n'
    )
    given = ["--fleet", "8xH100-80", "--price", "2"]
    command.main([str(path), *given, "--format", "json"], standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    assert record["needs"][0]["forwards"] == 8
    assert record["cost"] > 0
    command.main([str(path), *given], standalone_mode=False)
    text = capsys.readouterr().out
    assert "schedule" in text
    assert "estimated cost" in text
    assert not (tmp_path / "run").exists(), "planning writes nothing"
