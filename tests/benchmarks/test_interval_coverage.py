"""The simulation of intervals and tests: a small one, and what the committed one found."""

import json
import math
from pathlib import Path

import interval_coverage as program
import numpy as np
import pytest

from evaluator.measures.estimate import SHIFTED
from evaluator.measures.intervals import AGRESTI_COULL, BOOTSTRAPS, FISHER, WILSON

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("part", ["share_intervals", "paired", "shifted_g_s", "families"])
def test_a_small_simulation_finds_what_is_wanted(part: str) -> None:
    """Of 120 data sets, within three standard errors of what is wanted: a test that rejects 13% or an interval that holds 86%
    fails.
    """
    for result in getattr(program, part)(120):
        middle = sum(result.wanted) / 2
        slack = 3 * math.sqrt(middle * (1 - middle) / 120)
        assert result.wanted[0] - slack <= result.share <= result.wanted[1] + slack, result


def test_a_share_that_is_not_wanted_is_told() -> None:
    wrong = program.Result.of("x", "y", np.array([1.0] * 85 + [0.0] * 15), (0.93, 0.97))
    assert (wrong.share, wrong.met) == (0.85, False)
    assert program.Result.of("x", "y", np.array([1.0] * 95 + [0.0] * 5), (0.93, 0.97)).met


def test_the_committed_simulation_covers_every_method() -> None:
    found = json.loads((BENCHMARKS / "results" / "interval_coverage.json").read_text(encoding="utf8"))
    assert found["n"] == 200
    assert [row for row in found["results"] if not row["met"]] == []
    methods = {row["method"] for row in found["results"]}
    assert methods >= {*BOOTSTRAPS.values(), WILSON, AGRESTI_COULL, FISHER, BOOTSTRAPS["percentile"] + SHIFTED}
    assert min(row["sets"] for row in found["results"] if row["error"]) >= 600
