"""`evaluator.run`: score models, from Python as from the command line."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.reports.results import Results, warn
from evaluator.scoring.driver import Outcome
from evaluator.scoring.existing_answers import perform
from evaluator.scoring.spec import ModelSpec, allowing, default_folder, named_model, run_spec, under
from evaluator.store.remote import run_folder
from evaluator.tasks import chosen_tasks
from evaluator.tasks.base import Task
from evaluator.tasks.parameters import request_parameters
from evaluator.vocabulary import Protocol_
from evaluator_serving.budget import Budget
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import in_words


@dataclass(frozen=True, slots=True)
class ScoredRun(Results):
    """A run that `evaluator.run` has scored, open for reading, with its outcome.

    Attributes:
        outcome: what failed, and whose existing answers were scored.
        models_asked: names of the models of this call.
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
    """Score models on tasks in this process, as `evaluator run` does. Calling it again scores only what is missing.

    Args:
        tasks: a task's name or several.
        models: hub ids, folders or GGUF files, each optionally as NAME=MODEL; or a mapping from names in the results to these.
            Empty for tasks that score existing answers (gest-mt).
        out: the run's folder or URL (default: runs/TASK…-MODEL…).
        protocol: rules for making requests: `default`, or as in the papers' released code (`published`).
        limit: samples of each task, spread over its groups (default: all).
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        max_cost: maximum US dollars for all answers (needs `prompt_price` and `answer_price` in `extra`).
        engine: `auto`, an engine's name, or module:Class.
        dtype: of the weights and the arithmetic.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, …
        chat_template: `user`: the prompt becomes the beginning of the assistant's turn.
        batch_tokens: maximum padded tokens of a batch.
        extra: options of the engine.
        systems: one or more system prompts, as for `--system`; every model is scored under each.
        thinking: `on`, `off` or a level such as `low`, for reasoning models.
        date: date that chat templates insert as today's (YYYY-MM-DD; default: the day on which the run was created).
        allow_pickle: names of models whose weights may be pickled files.
        trust_remote_code: names of models whose repository's code may run.
        verify: compare engines with the transformers engine on some of the run's own rows.
        strict: refuse samples that a model cannot score, instead of skipping them.
        retry: send requests again that failed at every attempt.
        metrics: host and port at which Prometheus metrics are served during the run.
        command: the command line, for the record.
        parameters: the tasks' parameters, each for every task that takes it (docs/parameters.md lists them):
            `evaluator.run("gest-who", "gpt2", way="text", orders=2)`.

    Raises InputError for invalid arguments, and the model's error if there is only one model. If several models are scored,
    failures are warnings (ModelFailedWarning).
    """
    chosen = chosen_tasks((tasks,) if isinstance(tasks, str) else tuple(tasks), **parameters)
    paid = {} if max_cost is None else {"max_cost": Budget(max_cost)}
    options = EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra={**(extra or {}), **paid})
    plain = tuple(
        ModelSpec(spec, engine, chat_template, options, label, thinking=thinking or "") for label, spec in _labelled(models)
    )
    specs = under(allowing(plain, allow_pickle, trust_remote_code), (systems,) if isinstance(systems, str) else systems)
    names = tuple(each.name for each in specs)
    spec = run_spec(
        specs,
        chosen,
        run_folder(out) if out else default_folder([task.name for task in chosen], names or _first_given(chosen, parameters)),
        data=data,
        protocol=protocol,
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
    keys = [key for task in tasks for key in request_parameters(type(task.parameters)) if parameters.get(key) not in (None, ())]
    return keys[:1]
