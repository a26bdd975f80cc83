"""The callback of transformers' Trainer, on a tiny model that is trained for real."""

import gc
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

import evaluator
from evaluator.callbacks import StereotypeCallback
from evaluator_serving.errors import InputError

TASK = "gest-demo"


def trainer(model: Path, out: Path, **options: Any) -> Trainer:
    """One that trains a model on the same few tokens."""
    torch.manual_seed(0)
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    ids = tokenizer("She said that she was tired and he was the boss of it all")["input_ids"][:12]
    rows = [{"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)} for _ in range(200)]
    how = {"per_device_train_batch_size": 1, "learning_rate": 1e-3, "report_to": "none", "use_cpu": True, "logging_steps": 2}
    return Trainer(
        model=loaded,
        args=TrainingArguments(str(out), **{**how, "disable_tqdm": True, **options}),
        train_dataset=rows,  # type: ignore[arg-type]
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )


@pytest.fixture(autouse=True)
def _no_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder tests/datasets isn't the package that transformers takes it for."""
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("gpt2", tmp_path_factory.mktemp("model") / "model", attn_pdrop=0.5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_live_model_has_the_rates_of_its_checkpoints(model: Path, tmp_path: Path) -> None:
    plain = trainer(model, tmp_path / "plain", max_steps=5, save_strategy="no")
    plain.train()
    training = trainer(model, tmp_path / "checkpoints", max_steps=5, save_strategy="steps", save_steps=2)
    parameters = {name: id(parameter) for name, parameter in training.model.named_parameters()}
    training.add_callback(StereotypeCallback(training, [TASK], tmp_path / "live", every=2, limit=32))
    training.train()

    live = evaluator.open(tmp_path / "live")
    assert live.models == ["model@step2", "model@step4", "model@step5"]
    saved = {f"model@step{step}": str(tmp_path / "checkpoints" / f"checkpoint-{step}") for step in (2, 4, 5)}
    after = evaluator.run(TASK, saved, tmp_path / "after", limit=32, engine="transformers", dtype="float32")
    ours, theirs = (run.rates().filter(pl.col("other").is_null()) for run in (live, after))
    assert ours.select("model", "template", "measure", "group", "n").equals(
        theirs.select("model", "template", "measure", "group", "n")
    )
    for name in ("value", "low", "high"):
        assert ours[name].is_null().equals(theirs[name].is_null())
        assert ours[name].drop_nulls().to_list() == pytest.approx(theirs[name].drop_nulls().to_list(), rel=2e-5)
    values = ours.filter(measure="g_s", template="all")["value"].to_list()
    assert len(set(values)) == 3  # it has learnt something

    logged = [entry for entry in training.state.log_history if f"stereotype/{TASK}/g_s/en/all" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 5]
    assert [entry[f"stereotype/{TASK}/g_s/en/all"] for entry in logged] == pytest.approx(values)
    assert all(e[f"stereotype/{TASK}/g_s/en/all/low"] < e[f"stereotype/{TASK}/g_s/en/all/high"] for e in logged)

    # The training went as without it: dropout drew the same numbers, the optimizer has the same weights.
    assert [e["loss"] for e in training.state.log_history if "loss" in e] == [
        e["loss"] for e in plain.state.log_history if "loss" in e
    ]
    assert {name: id(parameter) for name, parameter in training.model.named_parameters()} == parameters
    for (name, one), other in zip(training.model.state_dict().items(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_what_goes_wrong(model: Path, tmp_path: Path) -> None:
    training = trainer(model, tmp_path / "out", max_steps=2, save_strategy="no")
    with pytest.raises(InputError, match="every is 0"):
        StereotypeCallback(training, [TASK], tmp_path / "run", every=0)
    with pytest.raises(InputError, match="unknown task 'gestt'"):
        StereotypeCallback(training, ["gestt"], tmp_path / "run", every=1)
    missing = StereotypeCallback(training, ["gest"], tmp_path / "run", every=1, data=tmp_path)
    training.add_callback(missing)
    with pytest.raises(InputError, match="no such file"):
        training.train()
    training.remove_callback(missing)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    training.add_callback(StereotypeCallback(training, [TASK], tmp_path / "taken", every=2, limit=8))
    with pytest.warns(UserWarning, match="stereotypes at step 2 were not measured .*is not a run"):
        training.train()
    assert training.state.global_step == 2


def test_the_same_step_of_another_training(model: Path, tmp_path: Path) -> None:
    for rate in (1e-3, 1e-2):
        training = trainer(model, tmp_path / "out", max_steps=1, save_strategy="no", learning_rate=rate)
        training.add_callback(StereotypeCallback(training, [TASK], tmp_path / "run", every=1, limit=8, name="mine"))
        training.train()
    first, second = evaluator.open(tmp_path / "run").models
    assert first == "mine@step1"
    assert second.startswith("mine@step1-")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_memory_does_not_grow_with_evaluations(model: Path, tmp_path: Path) -> None:
    """70 evaluations: after the first 20, 50 more take no more than 16 MiB."""
    sizes = []

    class Measure(StereotypeCallback):
        def _evaluate(self, model: Any, step: int) -> None:
            super()._evaluate(model, step)
            gc.collect()
            sizes.append(psutil.Process().memory_info().rss)

    training = trainer(model, tmp_path / "out", max_steps=70, save_strategy="no", logging_strategy="no")
    training.add_callback(Measure(training, [TASK], tmp_path / "run", every=1, limit=16))
    training.train()
    assert len(sizes) == 70
    assert sizes[-1] - sizes[19] < 16 << 20, [size >> 20 for size in sizes]
