"""What the oracle said of rows, remembered beside what is known of a model: an engine is checked against it without loading
the oracle again.

Only of models whose graphs are in the cache (`models.model_cache`), in one dtype, computed on a CPU by these versions of the
libraries. The engine computes its own numbers anew each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from evaluator_serving.cache import remember_json, remembered_json
from evaluator_serving.models.model_cache import cached_folder
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row

_FORMAT = 2
_MOST = 200
"""Rows of a model that are kept: the last ones that were asked."""

Answer = np.ndarray | None
"""A row's log-probabilities, None where the oracle has no finite ones."""


@dataclass(frozen=True, slots=True)
class OracleCache:
    """Rows of one model with what the oracle said of them, in one dtype."""

    file: Path
    answers: dict[Row, Answer]

    @classmethod
    def of(cls, source: ModelSource, dtype: str) -> "OracleCache":
        """What is remembered of a model; nothing where it isn't known, or was asked of other versions."""
        file = cached_folder(source.revision) / f"oracle-{dtype}.json"
        content = remembered_json(file)
        rows = content["rows"] if content.get("made_with") == _made_with() else []
        return cls(file, {_row(fields): _answer(numbers) for fields, numbers in rows})

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Remember the answers to rows, if the model is known."""
        if not self.file.parent.is_dir():
            return
        new = dict(zip(rows, answers, strict=True))
        kept = {row: answer for row, answer in self.answers.items() if row not in new} | new
        listed = [[_fields(row), None if a is None else [float(x) for x in a]] for row, a in list(kept.items())[-_MOST:]]
        remember_json(self.file, {"made_with": _made_with(), "rows": listed})

    def like(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that can stand in for `rows`: of each of their heads those that have answers, if none of `rows` is longer.

        Empty where that is so of not every head.
        """
        found: list[Row] = []
        for head in {row.head for row in rows}:
            mine = [row for row, answer in self.answers.items() if row.head == head and answer is not None]
            longest = max((row.length for row in mine), default=0)
            if longest < max(row.length for row in rows if row.head == head):
                return []
            found += mine
        return found


def _made_with() -> dict[str, Any]:
    return {"format": _FORMAT, **{name: version(name) for name in ("torch", "transformers")}}


def _fields(row: Row) -> list[Any]:
    return [row.head, row.ids, row.lookups, row.type_ids, row.encoder_ids]


def _row(fields: Sequence[Any]) -> Row:
    head, ids, lookups, types, encoder = fields
    read = tuple((at, token) for at, token in lookups)
    return Row(
        head,
        tuple(ids),
        read,
        type_ids=None if types is None else tuple(types),
        encoder_ids=None if encoder is None else tuple(encoder),
    )


def _answer(numbers: Sequence[float] | None) -> Answer:
    return None if numbers is None else np.array(numbers)
