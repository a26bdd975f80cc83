"""Weights that change, and adapters: what a run's record and its reader are told."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import execute, prepare, score_models
from evaluator.scoring.record import record
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator_serving.errors import InputError
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    samples = write_samples(tmp_path / "own.csv", sentences(8))
    return RunSpec((ModelSpec(str(tiny_model("gpt2", tmp_path / "gpt2"))),), (custom(samples),), tmp_path / "run")


def test_weights_that_change_before_they_are_loaded_are_not_scored_as_the_old_ones(spec: RunSpec, tmp_path: Path) -> None:
    """Between the start of a sweep and the start of its last model lie hours, in which a training may go on."""
    ready = prepare(spec)
    run = record(spec, ready.tasks, ready.models)
    tiny_model("gpt2", tmp_path / "gpt2", seed=1)
    with pytest.raises(InputError, match="its files have changed since this command began: start it again"):
        score_models(run, ready, spec)
    assert not run.done("gpt2")


def test_an_adapter_put_beside_weights_makes_another_model_and_is_told(spec: RunSpec, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft isn't installed: install the lora extra")
    from transformers import AutoModelForCausalLM

    execute(spec)
    folder = tmp_path / "gpt2"
    config = peft.LoraConfig(init_lora_weights=False, fan_in_fan_out=True)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config).save_pretrained(folder)
    with pytest.raises(InputError, match="was made with another revision for model gpt2"):
        execute(spec)
    run = execute(replace(spec, out=tmp_path / "adapted")).run
    assert run.record["models"]["gpt2"]["adapter"]["base"] == str(folder)
    assert any("a LORA adapter" in note and "merged into the weights beside it" in note for note in run_notes(run.record))
