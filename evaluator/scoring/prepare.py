"""Everything that can go wrong before weights are loaded goes wrong here: data, models, encodings, the run folder."""

import functools
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.scoring.encodings import Asked, Encodes, Encodings, Wanted
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer
from evaluator.scoring.model_setup import ModelSetup, is_templated, set_up_model
from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.skip_rules import reasons, skipped_by_task, useless
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.summary import Summary
from evaluator.store.record import same_model
from evaluator.store.run import Run
from evaluator_serving.errors import InputError, ModelError
from evaluator_serving.identity import fingerprint
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request
from evaluator_serving.table import EncodedTable


@dataclass(frozen=True, slots=True)
class UnencodedModel:
    """A model and what it is to be asked.

    Attributes:
        setup: the model.
        tables: task name → Rendered.table.
        requests: of all its tasks, by id.
        done, failed: ids of requests that have an answer, or were given up.
    """

    setup: ModelSetup
    tables: Mapping[str, pl.DataFrame]
    requests: Mapping[str, Request]
    done: Set[str]
    failed: Set[str]

    @property
    def wanted(self) -> list[Wanted]:
        """What is to be encoded: nothing where all is answered, else all of it, so that a resumed run cuts the same chunks."""
        return [] if self.requests.keys() <= self.done else [Wanted(self.setup.source, Asked(self.requests, self.tables))]


def ask_model(
    spec: ModelSpec, source: ModelSource, run: RunSpec, tasks: Sequence[LoadedTask], renderer: Renderer
) -> UnencodedModel:
    """Render a model's tasks for it, and see what it has answered. Raises as `set_up_model`."""
    setup = set_up_model(spec, source, run, tasks, renderer)
    tables = {task: renderer.render(task, used).table for task, used in setup.heads.items()}
    return UnencodedModel(setup, tables, renderer.requests(setup.heads), *_settled(run.out, setup))


def prepare_model(model: UnencodedModel, run: RunSpec, tasks: Sequence[LoadedTask], encodings: Encodings) -> PreparedModel:
    """Encode every request of a model that has one without an answer. `encodings` are those of the run's other models.

    Tasks and samples that the model cannot be asked are skipped and recorded; with `run.strict` they raise InputError. Raises
    ModelError where no task is left.
    """
    setup, tables, done, failed = model.setup, dict(model.tables), model.done, model.failed
    source, heads, skipped_tasks = setup.source, dict(setup.heads), dict(setup.skipped_tasks)
    encoded = EncodedTable.of([])
    refused: dict[str, str] = {}
    begun = time.perf_counter()
    if model.wanted:
        encoder = functools.partial(_encoder, source, strict=run.strict)
        found = encodings.encode(source, model.requests, encoder, strict=run.strict)
        encoded, refused = found.table, reasons(found.refused, tables, setup.name, strict=run.strict)
    encode_seconds = time.perf_counter() - begun
    skipped_samples = skipped_by_task(tables, refused)
    for task in (loaded.task for loaded in tasks):
        if task.name in skipped_samples and skipped_samples[task.name].too_much(task):
            skipped_tasks[task.name] = str(skipped_samples.pop(task.name))
            del tables[task.name], heads[task.name]
    if not tables:
        raise useless(setup.name, skipped_tasks.values())
    left = {request for table in tables.values() for request in table["request"].to_list()}
    encoded = encoded.only([request for request in encoded.requests if request in left])
    answered = frozenset(done & left)
    # So many were given up that the model was at fault, which may have been mended since: all of them are asked again.
    again = run.retry or run.strict or PendingChunks.hopeless(len(failed & left), len(left))
    given_up = frozenset() if again else frozenset(failed & left)
    asked = Asked(model.requests, tables)
    summary = encodings.summarize(encoded, asked, answered, given_up) if encoded else Summary()
    encoded.release()
    total = len(left - refused.keys())
    if len(answered) + len(given_up) == total:
        encoded = EncodedTable.of([])
    return PreparedModel(
        spec=setup.spec,
        source=source,
        info=setup.info,
        heads=heads,
        skipped_tasks=skipped_tasks,
        tables=tables,
        encoded=encoded,
        answered=answered,
        total=total,
        limit=run.limit,
        refused=tuple((request, reason) for request, reason in refused.items() if request in left),
        summary=summary,
        skipped_samples=skipped_samples,
        given_up=given_up,
        encode_seconds=encode_seconds,
        dated=is_templated(source, model.requests) and not source.served and _writes_date(source),
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
