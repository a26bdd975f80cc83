"""Which rows may share a batch of a loaded model, found out by asking it. Pure but for the function that asks.

Some models' output depends on the padding behind a row, mask or no mask (Fourier mixing, convolutions and pooling that cross
the row's end), some even on the rows beside it: their numbers would depend on the batch, and so on `--limit` and on resuming.
It costs six short inputs: 0.5 s for SmolLM2-135M, 1 s for a model of BERT-base's shape, in float32 on one core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.batching import Mates
from evaluator_serving.errors import InputError
from evaluator_serving.rows import GREEDY, Row

TOLERANCE = {"float64": 1e-8, "float32": 2e-4, "float16": 0.1, "bfloat16": 0.6, "bf16x2": 1e-3}
"""Largest |Δ log P| between a row alone and in a batch that is rounding (natural log).

Over all positions and the whole vocabulary, SmolLM2 and 20 masked architectures differ by up to 3e-5 (float32), 0.05
(float16) and 0.4 (bfloat16); models that depend on padding by 3 to 10 in each.
"""

MORE = (3, 24)
"""Tokens by which the probes are longer than the shortest one."""
_KEPT = 4
"""Tokens that are left of a shortened probe."""
_TOKENS, _POSITIONS = 4, 16
"""About how many tokens are read at each position of a probe, and at how many positions."""

Numbers = NDArray[np.floating]
Score = Callable[[Sequence[Row]], list[Numbers]]
"""Answers rows as one batch."""


@dataclass(frozen=True, slots=True)
class PaddingCheck:
    """Which rows may share a batch, and how far log P moves where not all may (None where that wasn't seen)."""

    mates: Mates = "any"
    difference: float | None = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        return {"mates": self.mates, "difference": self.difference}


def find_mates(score: Score, rows: Sequence[Row], context: int, dtype: str) -> PaddingCheck:
    """Compare rows of clearly different length, made of `rows` (of one head), in one batch with each of them alone.

    What a row alone raises is raised; a batch that raises is one that its rows can't share. Raises InputError, without the
    model's name, where one row alone is answered differently when it is asked again (random hashing, say).
    """
    made = probes(rows, context)
    limit = TOLERANCE[dtype]
    together = _difference(score, made)
    if together is not None and together <= limit:
        return PaddingCheck()
    again = max(_difference(score, [row]) or 0.0 for row in made)
    if again > limit:
        raise InputError(
            f"is not deterministic (log P of the same text differs by {again:.2g}), so they mean nothing: "
            "use another model, or disable what is random in its config.json"
        )
    twins = _difference(score, [made[-1], _turned(made[-1])])
    return PaddingCheck("equal" if twins is not None and twins <= limit else "none", together)


def probes(rows: Sequence[Row], context: int) -> list[Row]:
    """Rows whose lengths differ by MORE, made of the shortest of `rows` and of one of middling length; all positions are read.
    The longest one is as long as the longest of `rows`, if that is more: padding may count from some length on only.

    Where the context leaves no room for longer rows, the shortest one is cut.
    """
    order = sorted(rows, key=lambda row: (row.length, row.ids))
    short, middle = order[0], order[len(order) // 2]
    size = len(short.encoder_ids or short.ids)
    base = max(min(size, _KEPT), min(size, context - MORE[-1]))
    longest = max(base + MORE[-1], len(order[-1].encoder_ids or order[-1].ids))
    made = [_resized(short, base), *(_resized(middle, min(length, context)) for length in (base + MORE[0], longest))]
    wanted = tuple(dict.fromkeys(token for row in (short, middle) for _, token in row.lookups))[:_TOKENS]
    return [_read_everywhere(row, wanted) for row in made]


def _difference(score: Score, rows: Sequence[Row]) -> float | None:
    """Largest |Δ log P| between `rows` alone and together; None where they can't be computed together.

    A row that alone gives NaN says nothing here: scoring it names it.
    """
    alone = [score([row])[0] for row in rows]
    try:
        together = score(rows)
    except (RuntimeError, ValueError) as error:
        if "memory" in str(error):
            raise
        return None
    pairs = [(a, b) for a, b in zip(alone, together, strict=True) if np.isfinite(a).all()]
    return max((float(np.abs(a - b).max()) for a, b in pairs), default=0.0)


def _resized(row: Row, length: int) -> Row:
    """The row with this many tokens (the encoder's, if it has one, and as many more or fewer in the decoder)."""
    ids = row.ids[:-1] if row.ids[-1] == GREEDY and len(row.ids) > 1 else row.ids
    if row.encoder_ids is None:
        types = None if row.type_ids is None else _stretched(row.type_ids, length)
        return replace(row, ids=_stretched(ids, length), type_ids=types)
    decoder = max(1, len(ids) + length - len(row.encoder_ids))
    return replace(row, ids=_stretched(ids, decoder), encoder_ids=_stretched(row.encoder_ids, length))


def _stretched(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Copies of the second value inserted, or values taken out behind the first: the special tokens at the ends stay."""
    extra = length - len(values)
    if extra >= 0:
        at = min(2, len(values))
        return (*values[:at], *values[at - 1 : at] * extra, *values[at:])
    return (*values[:1], *values[len(values) - length + 1 :])


def _turned(row: Row) -> Row:
    """A row of the same shape with other contents: what stands between the ends in reverse order."""

    def turn(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:1], *values[-2:0:-1], *values[-1:]) if len(values) > 1 else values

    return replace(row, ids=turn(row.ids), encoder_ids=None if row.encoder_ids is None else turn(row.encoder_ids))


def _read_everywhere(row: Row, tokens: Sequence[int]) -> Row:
    """The row read at its ends and evenly in between, whatever it was read at; a pair has one place only."""
    if row.head == "pair":
        return row
    last = len(row.ids) - 1
    where = sorted({*range(0, last, max(1, len(row.ids) // _POSITIONS)), *range(max(0, last - 3), last + 1)})
    return replace(row, lookups=tuple((at, token) for at in where for token in tokens))
