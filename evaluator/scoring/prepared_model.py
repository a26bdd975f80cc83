"""A model with its encoded requests: what the loop scores."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

import polars as pl

from evaluator.scoring.model_setup import ModelSetup
from evaluator.scoring.progress import ModelProgress
from evaluator.scoring.skip_rules import Skipped
from evaluator.scoring.summary import Summary
from evaluator.store.sample_counts import SampleCounts
from evaluator.tasks.limit import sample_counts
from evaluator_serving.chunks import Chunk
from evaluator_serving.engine import DeviceKind
from evaluator_serving.identity import fingerprint
from evaluator_serving.models.decoding import decoding_record
from evaluator_serving.registry import engine_class
from evaluator_serving.table import EncodedTable


@dataclass(frozen=True, slots=True)
class PreparedModel(ModelSetup):
    """A model that is known to be able to do its work, and the work.

    Attributes:
        tables: task name → Rendered.table.
        encoded: the requests within the limit, answered ones included (so that an interrupted run cuts the same chunks again,
            and its numbers are the same to the last bit); empty if all are answered.
        answered: ids of the requests that have an answer already.
        total: distinct requests of the model in this command.
        limit: samples of each task, None for all.
        refused: (request id, reason) of those that this model cannot be asked.
        summary: of the encoded requests; empty where all requests are answered, for then nothing was encoded.
        skipped_samples: task name → which of its samples are skipped.
        given_up: ids of the requests that failed whenever they were tried, and are not tried again.
        encode_seconds: time that encoding took.
        dated: whether the chat template writes the date.
    """

    tables: Mapping[str, pl.DataFrame]
    encoded: EncodedTable
    answered: frozenset[str]
    total: int
    limit: int | None = None
    refused: tuple[tuple[str, str], ...] = ()
    summary: Summary = field(default_factory=Summary)
    skipped_samples: Mapping[str, Skipped] = field(default_factory=dict)
    given_up: frozenset[str] = frozenset()
    encode_seconds: float = 0.0
    dated: bool = False

    @property
    def chunk_tokens(self) -> dict[DeviceKind, int]:
        """Tokens of a chunk that the engine takes on each kind of device."""
        made, parameters = engine_class(self.info.engine), self.source.parameters
        return {device: made.chunk_tokens(parameters, device) for device in get_args(DeviceKind)}

    def pending_chunks(self, cut: Iterable[Sequence[int]]) -> list[Chunk]:
        """The chunks of what has no answer yet; `cut`: how all that is encoded was cut (see `evaluator_serving.chunks.cut`)."""
        settled = self.answered | self.given_up
        chunks = [Chunk(self.encoded, which) for which in cut]
        if not settled:
            return chunks
        left = [[i for i, request in enumerate(chunk.requests) if request not in settled] for chunk in chunks]
        return [chunk.part(rest) for chunk, rest in zip(chunks, left, strict=True) if rest]

    def since(self, done: Set[str]) -> "PreparedModel":
        """The same work, less the requests that another process has answered while it was prepared."""
        answered = self.answered | (done & set(self.encoded.requests))
        given_up = self.given_up - answered
        left = len(answered) + len(given_up) < self.total
        return replace(self, answered=answered, given_up=given_up, encoded=self.encoded if left else EncodedTable.of([]))

    @property
    def progress(self) -> ModelProgress:
        """How far it is before anything has been scored."""
        return ModelProgress(self.name, self.total, len(self.answered), len(self.given_up))

    @property
    def entry(self) -> dict[str, Any]:
        """The model's entry in run.json."""
        adapter = {"adapter": asdict(self.source.adapter)} if self.source.adapter else {}
        condition = {"condition": asdict(self.spec.condition)} if self.spec.condition else {}
        chats = "chat" in self.all_heads
        decoding = decoding_record(self.source, self.info.engine, self.spec.options.extra) if chats else {}
        return {
            "spec": self.spec.spec,
            "revision": self.info.revision,
            "engine": self.info.engine,
            "dtype": self.info.dtype,
            "versions": self.info.versions,
            "details": self.info.details,
            "fingerprint": fingerprint(self.info),
            "heads_used": {task: sorted(heads) for task, heads in self.heads.items()},
            "asked": {task: self._sample_counts(task) for task in self.tables},
            "unasked": dict(self.skipped_tasks),
            "text_tokens": {task: dict(counts) for task, counts in self.summary.text_tokens.items()},
            "facts": self._facts,
            **adapter,
            **({"pickled": True} if self.source.pickled else {}),
            **({"code": asdict(self.source.code)} if self.source.code else {}),
            **({"tokenizer": asdict(self.source.tokenizer)} if self.source.tokenizer else {}),
            **condition,
            **({"decoding": decoding} if decoding else {}),
            **({"date": self.spec.day.date} if self.dated and self.spec.day else {}),
        }

    @property
    def _facts(self) -> dict[str, Any]:
        """What the model's configuration says of it, for figures over models: see `evaluator.reports.facts`."""
        family = getattr(self.source.config, "model_type", None)
        known = {"parameters": self.source.parameters or None, "family": family or None}
        return {name: value for name, value in known.items() if value is not None}

    def _sample_counts(self, task: str) -> SampleCounts:
        counts = sample_counts(self.limit, self.tables[task]["sample"].n_unique())
        skipped = self.skipped_samples.get(task)
        return {**counts, "skipped": skipped.samples, "reason": skipped.reason} if skipped else counts
