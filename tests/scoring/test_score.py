"""What an engine gives is stored for the requests that asked for it, or refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evaluator.scoring.score import requests_of_row, score_chunk
from evaluator_serving.chunks import make_chunk
from evaluator_serving.errors import EngineError
from evaluator_serving.rows import Encoded, EncodedCandidate, Row, reads_of


class Odd:
    """Gives one log-probability more, or less, than a row asks for; the next row makes up for it."""

    name = "odd"

    def __init__(self, more: int) -> None:
        self.more = more

    def score_kept(self, rows: Sequence[Row], _: Any) -> list[np.ndarray]:
        return [np.full(len(row.lookups) + change, -1.0) for row, change in zip(rows, (self.more, -self.more), strict=True)]


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    """The error names the row, whichever place its chunk gives it."""
    candidates = (EncodedCandidate((7, 8), reads_of(0, 2)),)
    chunk = make_chunk([Encoded(f"r{i}", (Row("causal", (i, 5), ((0, 7), (1, 8))),), candidates) for i in range(5)])

    class Broken(Odd):
        def score_kept(self, rows: Sequence[Row], _: Any) -> list[np.ndarray]:
            return [np.array([-1.0, number if row.ids[0] == 3 else -1.0]) for row in rows]

    with pytest.raises(EngineError, match="the odd engine gave a log-probability that is not finite") as caught:
        score_chunk(Broken(0), chunk)  # type: ignore[arg-type]
    assert caught.value.row is not None
    assert requests_of_row(chunk, caught.value.row) == ["r3"]


@pytest.mark.parametrize("more", [-1, 1])
def test_as_many_numbers_as_are_asked_for(more: int) -> None:
    candidates = (EncodedCandidate((7, 8), reads_of(0, 2)),)
    requests = [Encoded(f"r{i}", (Row("causal", (i, 5), ((0, 7), (1, 8))),), candidates) for i in (1, 2)]
    assert score_chunk(Odd(0), make_chunk(requests)).rows == 2  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=f"the odd engine gave {2 + more} log-probabilities where 2 were asked for"):
        score_chunk(Odd(more), make_chunk(requests))  # type: ignore[arg-type]
