"""`evaluator.run`: score models from Python, for notebooks."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluator.reports.results import Results, warn
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec, allowing, default_folder, under
from evaluator.store.remote import run_folder
from evaluator.tasks import chosen_tasks
from evaluator.vocabulary import DataSource, Inputs, Protocol_
from evaluator_serving.budget import Budget
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError, in_words


def run(
    tasks: str | Sequence[str],
    models: str | Sequence[str] | Mapping[str, str],
    out: str | Path | None = None,
    *,
    protocol: Protocol_ = "default",
    limit: int | None = None,
    data: str | Path | None = None,
    samples: str | Path | None = None,
    templates: str | Path | None = None,
    encoding: str | None = None,
    languages: str | Sequence[str] = (),
    template: str | None = None,
    wording: str | Path | None = None,
    way: str | None = None,
    orders: int | None = None,
    answers: int | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    max_cost: float | None = None,
    engine: str = "auto",
    dtype: str = "float32",
    device: str = "auto",
    chat_template: str = "none",
    systems: str | Sequence[str] = (),
    thinking: str = "",
    date: str | None = None,
    batch_tokens: int | None = None,
    extra: Mapping[str, str] | None = None,
    allow_pickle: Sequence[str] = (),
    trust_remote_code: Sequence[str] = (),
    verify: bool = True,
    strict: bool = False,
    retry: bool = False,
) -> Results:
    """Score models on tasks in this process, as `evaluator run` does; what is scored already isn't scored again.

    Args:
        tasks: a task's name or several.
        models: hub ids, folders, GGUF files; or a mapping of the names that they get in the results to them.
        out: the run's folder (default: runs/TASK…-MODEL…).
        data: folder of the data sets (default: EVALUATOR_DATA, else the cache).
        samples: file of the user's own sentences or pairs, with a task that takes them (gest, pairs).
        templates: file of the user's own templates or columns, likewise.
        encoding: of the file of samples, where it is neither UTF-8 nor UTF-16 with a byte-order mark.
        languages: codes (or one) of those that a task with several is asked in.
        wording: file of the user's own words for gest-who.
        way: how gest-who reads an answer, `text` or `logprobs`.
        orders: in how many orders of the choices gest-who asks.
        answers: how many answers each question gets.
        temperature: 0 takes the most probable token each time.
        max_tokens: most tokens of an answer.
        seed: what answers and orders are drawn with.
        max_cost: US dollars that all answers may cost together (with `prompt_price` and `answer_price` in `extra`).
        thinking: `on`, `off` or a level such as `low`, for models that think before they answer.
        date: what chat templates write as today's (YYYY-MM-DD; default: the day on which the run was made).
        systems: system prompts (or one) to ask every model under, as `--system` takes them.
        allow_pickle: names of those models whose weights may be pickled files.
        trust_remote_code: names of those models whose own repository's programs may be run.

    The others are as the options of `evaluator run`.

    Raises InputError where what is asked is wrong, and what befell the model where there is one. Of several models those that
    fail are told as warnings.
    """
    names = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    labels = dict(models) if isinstance(models, Mapping) else {}
    given = [models] if isinstance(models, str) else list(labels.values()) if labels else list(models)
    if not names or not given:
        raise InputError("run() takes a task and a model at least: evaluator.run('gest', 'gpt2')")
    paid = {} if max_cost is None else {"max_cost": Budget(max_cost)}
    options = EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra={**(extra or {}), **paid})
    plain = tuple(
        ModelSpec(str(spec), engine, chat_template, options, label, thinking=thinking)
        for label, spec in zip(labels or [""] * len(given), given, strict=True)
    )
    specs = under(allowing(plain, allow_pickle, trust_remote_code), (systems,) if isinstance(systems, str) else systems)
    inputs = Inputs(
        samples=_path(samples),
        templates=_path(templates),
        encoding=encoding,
        languages=(languages,) if isinstance(languages, str) else tuple(languages),
        template=template,
        wording=_path(wording),
        way=way,
        orders=orders,
        answers=answers,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
    )
    chosen = chosen_tasks(names, inputs)
    folder = data or os.environ.get("EVALUATOR_DATA")
    spec = RunSpec(
        models=specs,
        tasks=chosen,
        out=run_folder(out) if out else default_folder([task.name for task in chosen], [each.name for each in specs]),
        protocol=protocol,
        data=DataSource(Path(folder) if folder else None),
        limit=limit,
        verify=verify,
        strict=strict,
        retry=retry,
        date=date,
        command=("evaluator.run", *names),
    )
    outcome = execute(spec)
    warn(tuple(f"{name} failed: {in_words(error)}" for name, error in outcome.errors.items()))
    return Results(outcome.run.path)


def _path(given: str | Path | None) -> Path | None:
    return Path(given) if given else None
