"""A callback for transformers' Trainer that measures stereotypes during training.

trainer.add_callback(StereotypeCallback(trainer, ["gest"], "runs/training", every=500, limit=200))
"""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from evaluator.exports.result import label, main_rows
from evaluator.reports.report import Section
from evaluator.scoring.driver import Prepared, score_models
from evaluator.scoring.encodings import Encodings
from evaluator.scoring.failures import Failures
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer, load_tasks
from evaluator.scoring.model_setup import with_condition
from evaluator.scoring.prepare import ask_model, prepare_model
from evaluator.scoring.prompt_date import prompt_date
from evaluator.scoring.record import provenance, record
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.base import Task
from evaluator.tasks.stored import scores_of, task_of
from evaluator.vocabulary import DataSource, MeasureOptions, Protocol_, plain_layout
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError, in_words
from evaluator_serving.models.live import live_source


class StereotypeCallback(TrainerCallback):
    """Scores the model every `every` steps and at the end of training, logs the rates, and writes a run folder.

    The transformers engine scores the module in memory, in its dtype and on its device. Each evaluation is a model of
    the run, NAME@stepN; `evaluator report` and all other commands read the run. The Trainer logs stereotype/TASK/RATE with
    …/low and …/high. The training's random numbers, modes and weights do not change. If an evaluation
    fails, training continues with a warning.

    Args:
        trainer: the trainer; add the callback to it.
        tasks: names of tasks, or tasks.
        out: the run's folder, new or of an earlier part of this training.
        every: steps between two evaluations.
        limit: samples of each task, spread over its groups; None for all.
        name: the models' name before @stepN.
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        protocol: `default` or `published`.
        resamples: bootstrap resamples of the logged intervals.

    Raises InputError when training begins if a task or its data cannot be used, or if weights are sharded over processes (FSDP,
    DeepSpeed).
    """

    def __init__(
        self,
        trainer: Trainer,
        tasks: Sequence[str | Task],
        out: str | Path,
        *,
        every: int,
        limit: int | None = None,
        name: str = "model",
        data: str | Path | None = None,
        protocol: Protocol_ = "default",
        resamples: int = 200,
    ) -> None:
        if every < 1:
            raise InputError(f"every is {every}: give the number of steps between two evaluations, 1 or more")
        self._trainer = trainer
        self._every = every
        self._name = name
        self._resamples = resamples
        self._spec = RunSpec(
            models=(),
            tasks=tuple(task(one) if isinstance(one, str) else one for one in tasks),
            out=Path(out),
            protocol=protocol,
            data=DataSource(Path(data) if data else None),
            limit=limit,
            verify=False,
        )
        self._loaded: list[LoadedTask] = []
        self._renderer: Renderer | None = None
        self._encodings = Encodings()
        self._attempt = provenance(("evaluator.callbacks.StereotypeCallback",))
        self._last = -1

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Read the tasks, so that errors appear before training."""
        if not state.is_world_process_zero:
            return
        if args.fsdp or args.deepspeed:
            raise InputError("StereotypeCallback: sharded weights can't be scored in training: score the saved checkpoints")
        self._loaded = load_tasks(self._spec)
        self._renderer = Renderer(self._loaded, self._spec.protocol)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Evaluate every `every` steps."""
        if state.is_world_process_zero and state.global_step % self._every == 0:
            due = control.should_log
            self._evaluate(model, state.global_step)
            control.should_log = due  # logging the rates has put it out

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Evaluate the last step."""
        if state.is_world_process_zero and state.global_step != self._last:
            self._evaluate(model, state.global_step)

    def _evaluate(self, model: Any, step: int) -> None:
        self._last = step
        try:
            with _undisturbed(model), tempfile.TemporaryDirectory(prefix="evaluator-live-") as folder:
                name = self._score(model, step, Path(folder))
            logs = _rates(Run.open(self._spec.out), name, self._resamples)
        except Exception as error:
            warnings.warn(f"stereotypes at step {step} were not measured ({in_words(error)}); training goes on", stacklevel=2)
            return
        self._trainer.log(logs)

    def _score(self, model: Any, step: int, folder: Path) -> str:
        """Score the module as a model of the run; returns its name there."""
        assert self._renderer is not None, "training has begun"
        device = next(model.parameters()).device
        options = EngineOptions(dtype=str(model.dtype).removeprefix("torch."), device=str(device))
        spec = ModelSpec(f"{self._name}@step{step}", "transformers", options=options, day=prompt_date(self._spec.out, None))
        source = with_condition(live_source(model, self._trainer.processing_class, folder, spec.spec), spec)
        known = Run.open(self._spec.out).record["models"] if (self._spec.out / "run.json").is_file() else {}
        if known.get(spec.name, {}).get("revision", source.revision) != source.revision:  # another training's same step
            digest = source.revision.removeprefix("sha256:")[:6]
            spec = ModelSpec(spec.spec, spec.engine, options=options, label=f"{spec.spec}-{digest}", day=spec.day)
        unencoded = ask_model(spec, source, self._spec, self._loaded, self._renderer)
        prepared = prepare_model(unencoded, self._spec, self._loaded, self._encodings)
        run = record(self._spec, self._loaded, [prepared], self._attempt)
        with run.locked():
            errors = score_models(run, Prepared(tuple(self._loaded), (prepared,), Failures()), self._spec)
        if errors:
            raise errors.combined()
        return spec.name


@contextlib.contextmanager
def _undisturbed(model: Any) -> Iterator[None]:
    """In evaluation mode, in the weights' own dtype; afterwards mode, forward pass and random numbers are as before."""
    modes = [(module, module.training) for module in model.modules()]
    patched, plain = model.__dict__.get("forward"), getattr(model, "_original_forward", None)
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices):
        model.eval()
        if patched is not None and plain is not None:  # accelerate's forward pass, in mixed precision
            model.forward = plain
        try:
            yield
        finally:
            if patched is not None and plain is not None:
                model.forward = patched
            for module, training in modes:
                module.training = training


def _rates(run: Run, name: str, resamples: int) -> dict[str, float]:
    """The main rates of one model with their bounds, by the names under which they are logged."""
    logs: dict[str, float] = {}
    options = MeasureOptions(resamples=resamples, protocol=run.protocol)
    for each in run.tasks:
        measured = task_of(run, each)
        rows = measured.measure(scores_of(run, each, {name}), options)
        section = Section(each, rows, measured.layout(options) or plain_layout(rows), ())
        for row in main_rows(section):
            key = f"stereotype/{each}/{label(row)}"
            known = {key: row["value"], f"{key}/low": row["low"], f"{key}/high": row["high"]}
            logs |= {where: number for where, number in known.items() if number is not None}
    return logs
