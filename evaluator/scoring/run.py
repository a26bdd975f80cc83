"""`evaluator.run`: score models, from Python as from the command line."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.reports.results import Results, warn
from evaluator.scoring.driver import Outcome
from evaluator.scoring.existing_answers import perform
from evaluator.scoring.spec import ModelSpec, RunSpec, allowing, default_folder, named_model, under
from evaluator.store.remote import run_folder
from evaluator.tasks import chosen_tasks
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import asked
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.budget import Budget
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import in_words


@dataclass(frozen=True, slots=True)
class ScoredRun(Results):
    """A run as `evaluator.run` left it: open for reading, with how it ended.

    Attributes:
        outcome: what failed, and whose existing answers were scored.
        models_asked: names of the models that were asked for.
    """

    outcome: Outcome
    models_asked: tuple[str, ...] = ()


class ModelFailedWarning(UserWarning):
    """One of several models failed; the others have results."""


def run(
    tasks: str | Sequence[str],
    models: str | Sequence[str] | Mapping[str, str] = (),
    out: str | Path | None = None,
    *,
    protocol: Protocol_ = "default",
    limit: int | None = None,
    data: str | Path | None = None,
    max_cost: float | None = None,
    engine: str = "auto",
    dtype: str = "float32",
    device: str = "auto",
    chat_template: str = "none",
    systems: str | Sequence[str] = (),
    thinking: str | None = None,
    date: str | None = None,
    batch_tokens: int | None = None,
    extra: Mapping[str, str] | None = None,
    allow_pickle: Collection[str] = (),
    trust_remote_code: Collection[str] = (),
    verify: bool = True,
    strict: bool = False,
    retry: bool = False,
    metrics: tuple[str, int] | None = None,
    command: Sequence[str] = (),
    **parameters: Any,
) -> ScoredRun:
    """Score models on tasks in this process, as `evaluator run` does. What is scored already isn't scored again.

    Args:
        tasks: a task's name or several.
        models: hub ids, folders, GGUF files, each maybe as NAME=MODEL; or a mapping of the names that they get in the results
            to them. None where the tasks score answers that exist already (gest-mt).
        out: the run's folder or URL (default: runs/TASK…-MODEL…).
        protocol: what is asked of the models, the right way (`default`) or as the papers' released code does (`published`).
        limit: samples of each task, spread over its groups (default: all).
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        max_cost: US dollars that all answers may cost together (with `prompt_price` and `answer_price` in `extra`).
        engine: `auto`, an engine's name, or module:Class.
        dtype: of the weights and the arithmetic.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, …
        chat_template: `user`: the prompt becomes the beginning of the assistant's turn.
        batch_tokens: maximum padded tokens of a batch.
        extra: options of the engine.
        systems: system prompts (or one) to ask every model under, as `--system` takes them.
        thinking: `on`, `off` or a level such as `low`, for models that think before they answer.
        date: what chat templates write as today's (YYYY-MM-DD; default: the day on which the run was made).
        allow_pickle: names of those models whose weights may be pickled files.
        trust_remote_code: names of those models whose own repository's programs may be run.
        verify: compare engines with the transformers engine on some of the run's own rows.
        strict: refuse samples that a model cannot score, instead of skipping them.
        retry: ask again the requests that failed at every attempt.
        metrics: host and port where metrics for Prometheus are served while it runs.
        command: the command line, for the record.
        parameters: the tasks' parameters, each for every task that takes it (docs/parameters.md lists them):
            `evaluator.run("gest-who", "gpt2", way="text", orders=2)`.

    Raises InputError where what is asked is wrong, and the model's error where there is only one model. Of several models those
    that fail are warnings (ModelFailedWarning).
    """
    chosen = chosen_tasks((tasks,) if isinstance(tasks, str) else tuple(tasks), **parameters)
    paid = {} if max_cost is None else {"max_cost": Budget(max_cost)}
    options = EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra={**(extra or {}), **paid})
    plain = tuple(
        ModelSpec(spec, engine, chat_template, options, label, thinking=thinking or "") for label, spec in _labelled(models)
    )
    specs = under(allowing(plain, allow_pickle, trust_remote_code), (systems,) if isinstance(systems, str) else systems)
    names = tuple(each.name for each in specs)
    folder = data or os.environ.get("EVALUATOR_DATA")
    spec = RunSpec(
        models=specs,
        tasks=chosen,
        out=run_folder(out)
        if out
        else default_folder([task.name for task in chosen], names or _first_given(chosen, parameters)),
        protocol=protocol,
        data=DataSource(Path(folder) if folder else None),
        limit=limit,
        verify=verify,
        strict=strict,
        retry=retry,
        metrics=metrics,
        date=date,
        command=tuple(command) or ("evaluator.run", *([tasks] if isinstance(tasks, str) else tasks)),
    )
    outcome = perform(spec)
    warn([f"{name} failed: {in_words(error)}" for name, error in outcome.errors.items()], category=ModelFailedWarning)
    return ScoredRun(outcome.run.path, outcome, names)


def _labelled(models: str | Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Each model's label, empty where it has none, and its spec."""
    if isinstance(models, Mapping):
        return [(label, str(spec)) for label, spec in models.items()]
    return [named_model(str(model)) for model in ([models] if isinstance(models, str) else models)]


def _first_given(tasks: Sequence[Task], parameters: Mapping[str, Any]) -> list[str]:
    """The first parameter that is given to a task, which names the folder of a run without models."""
    keys = [key for task in tasks for key in asked(type(task.parameters)) if parameters.get(key) not in (None, ())]
    return keys[:1]
