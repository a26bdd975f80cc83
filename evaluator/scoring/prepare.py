"""Everything that can go wrong before weights are loaded goes wrong here: data, models, encodings, the run folder."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.scoring.coverage import tokens_of_task
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer
from evaluator.scoring.model_setup import ModelSetup, is_templated, set_up_model
from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.skip_rules import Encodes, encode, skipped_by_task, useless
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.record import same_model
from evaluator.store.run import Run
from evaluator_serving.errors import InputError, ModelError
from evaluator_serving.identity import fingerprint
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import kind
from evaluator_serving.rows import Encoded


class Encodings:
    """Encoded requests, shared by all models whose encoders are alike: a sweep has several models with one tokenizer, and
    encoding all its requests takes minutes and gigabytes a model."""

    def __init__(self) -> None:
        self._by_encoder: dict[str, dict[str, Encoded]] = {}

    def of(self, source: ModelSource) -> dict[str, Encoded]:
        """Request id → encoded request for models like this one, so far."""
        from evaluator_serving.encoding import likeness

        return self._by_encoder.setdefault(likeness(source), {})


def prepare_model(
    spec: ModelSpec,
    source: ModelSource,
    run: RunSpec,
    tasks: Sequence[LoadedTask],
    renderer: Renderer,
    encodings: Encodings | None = None,
) -> PreparedModel:
    """Render a model's tasks for it and encode every request that has no answer yet.

    `encodings` are those of the run's other models, None where there are none.

    Tasks and samples that the model cannot be asked are skipped and recorded; with `run.strict` they raise InputError. Raises
    ModelError where no task is left.
    """
    setup = set_up_model(spec, source, run, tasks, renderer)
    spec, source, heads, skipped_tasks = setup.spec, setup.source, dict(setup.heads), dict(setup.skipped_tasks)
    tables = {task: renderer.render(task, used).table for task, used in heads.items()}
    requests = renderer.requests(heads)
    done, failed = _settled(run.out, setup)
    encoded: list[Encoded] = []
    refused: dict[str, str] = {}
    begun = time.perf_counter()
    if not requests.keys() <= done:
        known_rows = encodings.of(source) if encodings else None
        encoder = functools.partial(_encoder, source, strict=run.strict)
        encoded, refused = encode(requests, encoder, tables, spec.name, strict=run.strict, known=known_rows)
    encode_seconds = time.perf_counter() - begun
    skipped_samples = skipped_by_task(tables, refused)
    for task in (loaded.task for loaded in tasks):
        if task.name in skipped_samples and skipped_samples[task.name].too_much(task):
            skipped_tasks[task.name] = str(skipped_samples.pop(task.name))
            del tables[task.name], heads[task.name]
    if not tables:
        raise useless(spec.name, skipped_tasks.values())
    left = {request for table in tables.values() for request in table["request"]}
    encoded = [item for item in encoded if item.request in left]
    answered = frozenset(done & left)
    # So many were given up that the model was at fault, which may have been mended since: all of them are asked again.
    again = run.retry or run.strict or PendingChunks.hopeless(len(failed & left), len(left))
    given_up = frozenset() if again else frozenset(failed & left)
    texts = _text_tokens(tables, encoded) if encoded else {}
    total = len(left - refused.keys())
    if len(answered) + len(given_up) == total:
        encoded = []
    return PreparedModel(
        spec=spec,
        source=source,
        info=setup.info,
        heads=heads,
        skipped_tasks=skipped_tasks,
        tables=tables,
        encoded=tuple(encoded),
        answered=answered,
        kinds={item.request: kind(requests[item.request]) for item in encoded},
        total=total,
        limit=run.limit,
        refused=tuple((request, reason) for request, reason in refused.items() if request in left),
        text_tokens=texts,
        skipped_samples=skipped_samples,
        given_up=given_up,
        encode_seconds=encode_seconds,
        dated=is_templated(source, requests) and not source.served and _writes_date(source),
    )


def _settled(out: Path, model: ModelSetup) -> tuple[set[str], set[str]]:
    """Requests that this model (by its fingerprint) has answered in the run, under this name or another; and those that were
    given up."""
    if not (out / "run.json").is_file():
        return set(), set()
    run = Run.open(out)
    models, print_ = run.record["models"], fingerprint(model.info)
    known = model.name if models.get(model.name, {}).get("fingerprint") == print_ else same_model(models, print_)
    if known is None:
        return set(), set()
    done = run.done(known)
    return done, run.given_up(known) - done


def _writes_date(source: ModelSource) -> bool:
    from evaluator_serving.encoding.template import writes_date

    return writes_date(source)


def _encoder(source: ModelSource, *, strict: bool) -> Encodes:
    """The model's encoder. Raises ModelError where it can't be asked as it shall be, with `strict` InputError."""
    from evaluator_serving.encoding import encoder_for

    try:
        return encoder_for(source)
    except ModelError as error:
        if strict:
            raise InputError(str(error)) from error
        raise


def _text_tokens(tables: Mapping[str, pl.DataFrame], encoded: Sequence[Encoded]) -> dict[str, dict[str, Any]]:
    by_id = {item.request: item for item in encoded}
    return {task: tokens_of_task(table, by_id) for task, table in tables.items()}
