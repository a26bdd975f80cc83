"""Plans from configurations alone, offline: exact where they can be, and what is wrong in them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from tiny_models import tiny_model

from evaluator.cli.plan import command
from evaluator.scoring.driver import prepare
from evaluator.scoring.spec import ModelSpec, RunSpec, under
from evaluator.sweep.hardware import parse_fleet
from evaluator.sweep.planning.outline import outline_plan
from evaluator.sweep.planning.plan import make_plan
from evaluator.tasks import task
from evaluator_serving.errors import InputError
from evaluator_serving.models.outline import outlined, read_configurations
from tests.own_tasks import own_pairs as own_pairs

EXAMPLES = Path(__file__).parents[2] / "examples"
FLEET = parse_fleet("1x8xH100-80")


@pytest.fixture
def configuration(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tiny_model("llama", tmp_path / "model") / "config.json").read_text())
    return found


def test_all_but_the_tokens_is_what_a_plan_with_the_model_says(configuration: dict[str, Any], tmp_path: Path) -> None:
    """Same requests, passes, parameters and memory of weights; tokens of the right size."""
    tasks, out = (task("gest-demo"),), tmp_path / "run"
    known = make_plan(prepare(RunSpec((ModelSpec(str(tmp_path / "model"), "transformers"),), tasks, out)), FLEET).needs[0]
    found = outline_plan(RunSpec((ModelSpec("me/mine", "transformers"),), tasks, out), {"me/mine": configuration}, FLEET).needs[
        0
    ]
    assert (found.requests, found.demand.parameters, found.demand.weights) == (
        known.requests,
        known.demand.parameters,
        known.demand.weights,
    )
    assert (found.demand.heads, found.demand.kv_heads, found.demand.layers) == (4, 2, 2)
    assert found.demand.tokens == pytest.approx(known.demand.tokens, rel=0.5)


def test_engines_heads_and_shared_loads_are_chosen_as_in_a_run(tmp_path: Path) -> None:
    """A BERT with two heads of which the task uses one, a model of one task, a model that is loaded once for two."""
    families = {"bert": "bert-pretraining", "llama": "llama", "t5": "t5"}
    folders = {name: tiny_model(family, tmp_path / name) for name, family in families.items()}
    configurations = {f"me/{name}": json.loads((folder / "config.json").read_text()) for name, folder in folders.items()}
    (tmp_path / "own.csv").write_text("sent_more,sent_less\nThe man is strong,The woman is strong\n")
    tasks = (task("gest-demo"), own_pairs(tmp_path / "own.csv"))

    def run(specs: dict[str, str]) -> RunSpec:
        only = {"bert": ("gest-demo",)}
        plain = tuple(ModelSpec(spec, label=name, tasks=only.get(name, ())) for name, spec in specs.items())
        again = ModelSpec(specs["llama"], label="again", tasks=("gest-demo",))
        return RunSpec((*plain, again), tasks, tmp_path / "run", limit=8)

    real = make_plan(prepare(run({name: str(folder) for name, folder in folders.items()})), FLEET)
    estimate = outline_plan(run({name: f"me/{name}" for name in folders}), configurations, FLEET)
    decided = [[(need.name, need.demand.engine, need.requests, need.alike) for need in plan.needs] for plan in (estimate, real)]
    assert decided[0] == decided[1]
    assert {name: engine for name, engine, *_ in decided[0]}["bert"] == "onnx"
    assert list(estimate.ready.errors) == list(real.ready.errors) == ["t5"]


def test_conditions_of_a_model_share_a_load(configuration: dict[str, Any], tmp_path: Path) -> None:
    models = under((ModelSpec("me/mine", "transformers"), ModelSpec("me/other", "transformers")), ["none", "fair=Be fair."])
    plan = outline_plan(
        RunSpec(models, (task("gest-demo"),), tmp_path / "run"), dict.fromkeys(("me/mine", "me/other"), configuration), FLEET
    )
    mine, other = (f"me/{name}+chat-user+none" for name in ("mine", "other"))
    assert [need.alike for need in plan.needs] == [mine, mine, other, other]


SIZES = {  # in millions, as their makers give them
    "utter-project/EuroLLM-1.7B": 1657,
    "meta-llama/Llama-3.2-1B": 1236,
    "meta-llama/Llama-3.1-8B-Instruct": 8030,
    "google/gemma-2-2b": 2614,
    "google/gemma-2-27b-it": 27227,
    "Qwen/Qwen2.5-0.5B": 494,
    "mistralai/Mistral-7B-v0.3": 7248,
}


@pytest.mark.parametrize("spec", SIZES)
def test_parameters_are_counted_from_a_configuration(spec: str) -> None:
    source = outlined(spec, read_configurations(EXAMPLES / "eurogest_models.json"))
    assert source.parameters == pytest.approx(SIZES[spec] * 1e6, rel=1e-3)
    assert source.heads == {"causal"}


@pytest.mark.parametrize(
    ("kind", "named", "head"),
    [("emu3_text_model", "Emu3ForCausalLM", "causal"), ("t5", "T5ForConditionalGeneration", "seq2seq")],
)
def test_classes_that_are_no_generative_models_auto_class_are_counted(kind: str, named: str, head: str) -> None:
    config = transformers.AutoConfig.for_model(kind, num_hidden_layers=1, num_layers=1, architectures=[named])
    with torch.device("meta"):
        expected = sum(tensor.numel() for tensor in getattr(transformers, named)(config).parameters())
    source = outlined("me/mine", {"me/mine": config.to_dict()})
    assert (source.parameters, source.heads) == (expected, {head})


def test_the_example_is_planned_offline(data_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """24 models on 30 languages: requests, tokens, hours and memory of each, on a limited number of samples."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    sweep = tmp_path / "sweep.toml"
    sweep.write_text("limit = 600\n" + (EXAMPLES / "eurogest.toml").read_text(encoding="utf8"))
    models = str(EXAMPLES / "eurogest_models.json")
    asked = [str(sweep), "--data", str(data_dir), "--fleet", "1x8xH100-80", "--configurations", models, "--format", "json"]
    done = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert len(plan["needs"]) == 24
    for need in plan["needs"]:
        assert 590 <= need["requests"] <= 600  # equal texts of two languages are one request
        assert need["forwards"] == 2 * need["requests"]
        assert need["demand"]["tokens"] > 5 * need["requests"]
        assert need["demand"]["weights"] >= 2 * need["demand"]["parameters"]
    assert plan["schedule"]["makespan"] > 0
    assert "Token counts, and so times, are estimated from characters: no tokenizer was loaded." in plan["notes"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object of hub ids and configurations, each with a model_type"),
        ('{"me/mine": {}}', "each with a model_type"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "models.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_configurations(path)


def test_wrong_configurations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model me/mine@main: no configuration of 'me/mine' among those given: add it"):
        outlined("me/mine@main", {})
    with pytest.raises(InputError, match="its configuration can't be used"):
        outlined("me/mine", {"me/mine": {"model_type": "nonsense"}})
    with pytest.raises(InputError, match=r"can't read .*none\.json"):
        read_configurations(tmp_path / "none.json")
