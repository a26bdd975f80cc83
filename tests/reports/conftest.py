"""Reports made of few, hand-made rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.reports.report import Report, Section
from evaluator.store.run import FAILURES
from evaluator.tasks.gest_layout import rates_layout
from evaluator.vocabulary import TIDY, Layout, MeasureOptions

GROUPS = {"1": "emotional", "9": "self-confident"}
POLARITY = {"1": "female", "9": "male"}


def make_rows(*values: Mapping[str, Any]) -> pl.DataFrame:
    """Tidy rows; what isn't given is null, but for task and language."""
    default: dict[str, Any] = dict.fromkeys(TIDY) | {"task": "gest", "language": "en"}
    return pl.DataFrame([default | dict(value) for value in values], schema=TIDY)


def make_gest_rows(models: tuple[str, ...] = ("bert",), templates: tuple[str, ...] = ("1", "2")) -> pl.DataFrame:
    """q, q_f, q_m, g_s and ranks with intervals that are easy to find again."""
    made: list[Mapping[str, Any]] = []
    for model in models:
        for template in templates:
            place = {"model": model, "template": template, "scale": "ratio", "n": 100}
            for index, group in enumerate(GROUPS):
                value = 1.25 + index
                made.append(place | {"measure": "q", "group": group, "value": value, "low": value - 0.1, "high": value + 0.1})
                made.append(place | {"measure": "rank", "group": group, "value": index + 1.0, "n": 2, "scale": None})
            for measure, value in (("q_f", 1.25), ("q_m", 2.25), ("g_s", 1.8)):
                made.append(place | {"measure": measure, "value": value, "low": value - 0.125, "high": value + 0.125})
        overall = {"model": model, "template": "all", "measure": "g_s", "value": 1.8, "low": 1.7, "high": 1.9, "n": 200}
        made.append(overall | {"scale": "ratio"})
    return make_rows(*made)


RECORD = {
    "format": 1,
    "protocol": "default",
    "attempts": [{"command": ["evaluator", "run", "gest"], "seed": 0}],
    "tasks": {
        "gest": {
            "samples": 200,
            "sha256": {"gest.csv": "0123456789abcdef" * 4},
            "dropped": {"no pronoun": 3},
            "failures": [["row 7", "two candidates with one label"]],
        }
    },
    "models": {
        "bert": {"engine": "onnx", "dtype": "float32", "revision": "sha256:fedcba9876543210"},
        "old": {"imported": True, "revision": {"template 1": "aa", "template 2": "bb"}},
    },
}


def make_report(
    table: pl.DataFrame,
    *,
    layout: Layout | None = None,
    warnings: tuple[str, ...] = (),
    options: MeasureOptions | None = None,
    failures: tuple[tuple[str, str, str], ...] = (),
) -> Report:
    """A report of one section."""
    options = options or MeasureOptions()
    section = Section("gest", table, layout or rates_layout(GROUPS, POLARITY, options.scale), warnings)
    frame = pl.DataFrame([(*row, "retryable") for row in failures], schema=FAILURES, orient="row")
    return Report(Path("runs/my-run"), RECORD, options, (section,), frame)


@pytest.fixture
def small() -> Report:
    """One model, two templates, two groups."""
    return make_report(make_gest_rows())
