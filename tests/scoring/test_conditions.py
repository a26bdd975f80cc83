"""System prompts as conditions of one run: what is asked, by whom it is told, and that nothing else changes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import transformers
from chat_server import ChatServer
from polars.testing import assert_frame_equal
from tiny_models import tiny_model, tiny_talker

import evaluator
from evaluator.scoring import worker
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import Condition, ModelSpec, RunSpec, under
from evaluator.store.run import Run
from evaluator.sweep.config import read_sweep
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource
from evaluator_serving.chats import Chat, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.requests import Choice, Continuation

WITHOUT = "{% for m in messages %}{% if m.role == 'user' %}{{ '<s>' + m.content + '</s>' }}{% endif %}{% endfor %}"
FAIR = "Treat all people alike."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_talker(tmp_path_factory.mktemp("talker") / "model")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> evaluator.Results:
    out = tmp_path_factory.mktemp("run") / "run"
    models = {"m": str(model)}
    return evaluator.run(
        "gest-demo", models, out, limit=8, systems=["none", f"fair={FAIR}"], engine="transformers", dtype="float64"
    )


def plain(model: Path, system: str | None, context: str, candidate: str) -> float:
    """log P(candidate | the chat as the template writes it, then the context), one float64 pass over the whole text."""
    tokens = transformers.AutoTokenizer.from_pretrained(model)
    turns = [{"role": "system", "content": system}] if system is not None else []
    opening = tokens.apply_chat_template([*turns, {"role": "user", "content": ""}], tokenize=False, add_generation_prompt=True)
    ids = [tokens(text, add_special_tokens=False)["input_ids"] for text in (opening + context, opening + context + candidate)]
    assert ids[1][: len(ids[0])] == ids[0]
    made: Any = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).eval()
    with torch.inference_mode():
        logprobs = torch.log_softmax(made(torch.tensor([ids[1]])).logits[0], -1)
    return sum(float(logprobs[at - 1, ids[1][at]]) for at in range(len(ids[0]), len(ids[1])))


def test_scores_are_those_under_the_prompt(run: evaluator.Results, model: Path) -> None:
    """The words that a request asks for, by a loop that knows nothing of requests."""
    samples = task("gest-demo").load_limited(DataSource(), 8)
    requests = task("gest-demo").render(samples, frozenset({"causal"}), "default").requests
    key, request = next((key, one) for key, one in requests.items() if isinstance(one, Continuation) and one.context)
    for name, system in (("m+none", None), ("m+fair", FAIR)):
        answers = run.answers(name).filter(request=key).sort("candidate")
        found = [sum(row) for row in answers["logprobs"]]
        assert found == pytest.approx([plain(model, system, request.context, word) for word in request.candidates], abs=1e-6)


def test_every_condition_is_a_column(run: evaluator.Results) -> None:
    assert run.models == ["m+none", "m+fair"]
    with pytest.warns(UserWarning, match="m\\+fair: asked with the system prompt 'Treat all people alike.'"):
        rates = run.rates()
    found = rates.filter(pl.col("model") != "all").select("model", "condition").unique(maintain_order=True).rows()
    assert found == [("m+none", "none"), ("m+fair", "fair")]
    none, fair = (rates.filter(measure="g_s", condition=each)["value"].item(0) for each in ("none", "fair"))
    assert none != fair
    prints = [entry["fingerprint"] for entry in run.record["models"].values()]
    assert prints[0] != prints[1]


def test_none_is_the_run_without_conditions(run: evaluator.Results, model: Path, tmp_path: Path) -> None:
    how: Any = {"chat_template": "user", "engine": "transformers", "dtype": "float64"}
    alone = evaluator.run("gest-demo", str(model), tmp_path / "run", limit=8, **how)
    (name,) = alone.models
    assert alone.record["models"][name]["fingerprint"] == run.record["models"]["m+none"]["fingerprint"]
    assert alone.rates()["condition"].null_count() == alone.rates().height


def test_a_chat_is_asked_under_it(model: Path) -> None:
    source = replace(resolve(str(model)), system=FAIR)
    tokens = transformers.AutoTokenizer.from_pretrained(model)
    turns = [{"role": "system", "content": FAIR}, {"role": "user", "content": "who"}]
    expected = tokens.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"]
    encoder = encoder_for(source)
    (row,) = encoder.encode(Chat((Turn("user", "who"),))).rows
    assert list(row.ids) == list(expected)
    assert row.chat is not None
    assert row.chat.turns[0] == Turn("system", FAIR)
    rows = encoder.encode(Choice((Turn("user", "who"),), (" he", " she"))).rows
    assert all(list(each.ids[: len(expected)]) == list(expected)[: len(each.ids)] for each in rows)
    with pytest.raises(InputError, match="already has a system prompt"):
        encoder.encode(Chat((Turn("system", "b"), Turn("user", "who"))))


def test_a_server_is_told() -> None:
    with ChatServer() as server:
        source = replace(resolve(server.spec), system=FAIR)
        rows = encoder_for(source).encode(Chat((Turn("user", "who"),))).rows
        engine = open_engine("openai", source, EngineOptions(), rows)
        engine.generate(rows)
        engine.close()
    (body,) = server.bodies
    assert body["messages"] == [{"role": "system", "content": FAIR}, {"role": "user", "content": "who"}]


def test_words_of_the_option(tmp_path: Path) -> None:
    file = tmp_path / "careful.txt"
    file.write_text("Think.\n")
    assert Condition.read("none") == Condition("none", None)
    assert Condition.read("a=B = c") == Condition("a", "B = c")
    assert Condition.read("a=") == Condition("a", "")
    assert Condition.read(str(file)) == Condition("careful", "Think.")
    assert Condition.read(f"x={file}") == Condition("x", "Think.")
    long = "Ставтеся до всіх людей однаково. " * 40
    assert Condition.read(f"a={long}") == Condition("a", long)
    assert Condition.read("a=Why/why not?") == Condition("a", "Why/why not?")
    assert Condition.read("a=/no_think") == Condition("a", "/no_think")
    for wrong in ("just words", "none=a", long, "x=careful.txt", f"x={tmp_path}/no", "x=./no"):
        with pytest.raises(InputError, match=r"--system .*: (write|choose|correct)"):
            Condition.read(wrong)
    with pytest.raises(InputError, match="name one with --model"):
        under([], ["a=1"])
    with pytest.raises(InputError, match="two conditions are called 'a'"):
        under([], ["a=1", "a=2"])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Specs of the models that were loaded."""
    specs: list[str] = []

    def noted(name: str, source: ModelSource, *arguments: Any) -> Engine:
        specs.append(source.spec)
        return open_engine(name, source, *arguments)

    monkeypatch.setattr(worker, "open_engine", noted)
    return specs


def test_a_model_is_loaded_once_for_all_its_conditions(
    run: evaluator.Results, model: Path, tmp_path: Path, opened: list[str]
) -> None:
    """And again for what isn't the same: another model, another dtype. The record says of each what it was asked under."""
    other = str(tiny_talker(tmp_path / "other", WITHOUT))
    double = EngineOptions(dtype="float64")
    plain = [
        ModelSpec(str(model), "transformers", options=double, label="m"),
        ModelSpec(other, "transformers", label="other"),
        ModelSpec(str(model), "transformers", label="single"),
    ]
    specs = under(plain, ["none", f"fair={FAIR}", "kind=Be kind."])
    outcome = execute(RunSpec(specs, (task("gest-demo"),), tmp_path / "run", limit=8))
    assert opened == [str(model), other, str(model)]
    assert list(outcome.errors) == ["other+fair", "other+kind"]
    entries = outcome.run.record["models"]
    details = {name: entry["details"] for name, entry in entries.items()}
    assert len({json.dumps(entries[name]["engine_details"]) for name in ("m+none", "m+fair", "m+kind")}) == 1, "one engine"
    assert {name: each.get("system") for name, each in details.items() if name.startswith("m+")} == {
        "m+none": None,
        "m+fair": FAIR,
        "m+kind": "Be kind.",
    }
    assert [entries[name]["starts"][0]["reused_process"] for name in ("m+none", "m+fair", "m+kind")] == [False, True, True]
    scores = scores_of(outcome.run, "gest-demo")
    for name in ("m+none", "m+fair"):
        alone = scores_of(Run.open(run.path), "gest-demo").filter(model=name)
        assert_frame_equal(scores.filter(model=name), alone, abs_tol=1e-9, rel_tol=0.0)
    again = execute(RunSpec(specs[:2], (task("gest-demo"),), tmp_path / "run", limit=8))
    assert len(opened) == 3
    assert not again.errors


def test_what_breaks_under_one_prompt_is_loaded_anew_for_the_next(model: Path, tmp_path: Path, opened: list[str]) -> None:
    options = EngineOptions(extra={"fault": "score"})
    specs = under([ModelSpec(str(model), "tests.scoring.faulty:Faulty", options=options, label="m")], ["none", f"fair={FAIR}"])
    outcome = execute(RunSpec(specs, (task("gest-demo"),), tmp_path / "run", verify=False))
    assert list(outcome.errors) == ["m+none", "m+fair"]
    assert len(opened) == 2


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray_a_worker_loads_a_model_once(model: Path, tmp_path: Path) -> None:
    specs = under([ModelSpec(str(model), "onnx", label="m")], ["none", f"fair={FAIR}", "kind=Be kind."])
    spec = RunSpec(specs, (task("gest-demo"),), tmp_path / "run", limit=8)
    outcome = sweep(spec, SweepOptions("local", workers=1))
    assert not outcome.errors
    starts = [start for entry in outcome.run.record["models"].values() for start in entry["starts"]]
    first, *others = sorted(starts, key=lambda start: start["reused_process"])
    assert [start["reused_process"] for start in (first, *others)] == [False, True, True]
    assert first["seconds"]["verify"] > 0
    assert [start["seconds"]["verify"] for start in others] == [0.0, 0.0], "an engine that stays isn't checked again"
    here = execute(replace(spec, out=tmp_path / "here")).run
    for name in outcome.run.record["models"]:
        found, expected = (scores_of(each, "gest-demo").filter(model=name) for each in (outcome.run, here))
        assert_frame_equal(found, expected, abs_tol=1e-5, rel_tol=0.0)


def test_a_template_without_a_system_turn_is_that_models_failure(model: Path, tmp_path: Path) -> None:
    """Under that prompt alone. The others are asked, unless nothing may be left out."""
    other = str(tiny_talker(tmp_path / "other", WITHOUT))
    both = [ModelSpec(other, "transformers", label="other"), ModelSpec(str(model), "transformers", label="m")]
    spec = RunSpec(under(both, ["none", f"fair={FAIR}"]), (task("gest-demo"),), tmp_path / "run", limit=4)
    for wrong in (replace(spec, strict=True), replace(spec, models=spec.models[1:2])):
        with pytest.raises(InputError, match=r"changes the system prompt"):
            execute(wrong)
        assert not spec.out.exists()
    outcome = execute(spec)
    assert list(outcome.errors) == ["other+fair"]
    assert outcome.run.failures().select("model", "kind").rows() == [("other+fair", "unaskable")]
    assert outcome.run.asked("gest-demo") == ["other+none", "m+none", "m+fair"]


def test_a_model_without_a_chat_template_is_its_own_failure(model: Path, tmp_path: Path) -> None:
    both = [ModelSpec(str(tiny_model("gpt2", tmp_path / "base")), "transformers"), ModelSpec(str(model), "transformers")]
    outcome = execute(RunSpec(under(both, [f"fair={FAIR}"]), (task("gest-demo"),), tmp_path / "run", limit=4))
    assert list(outcome.errors) == ["base+chat-user+fair"]
    assert "remove --chat-template and --system, or this model" in str(outcome.errors["base+chat-user+fair"])
    assert outcome.run.asked("gest-demo") == ["model+chat-user+fair"]


def test_sweeps_have_them(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    text = 'tasks = ["gest-demo"]\nout = "x"\nsystems = ["none", "fair=Be fair."]\n[[models]]\nmodel = "gpt2"\n'
    file.write_text(text)
    assert [model.name for model in read_sweep(file).models] == ["gpt2+chat-user+none", "gpt2+chat-user+fair"]
    file.write_text(text.replace('"fair=Be fair."', '"words"'))
    with pytest.raises(InputError, match=r"sweep\.toml, line 3: systems: --system 'words' is not a file"):
        read_sweep(file)
