"""Values, bounds or whole measures that aren't defined are told in every format; nothing ends in a traceback."""

import io
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.cli.output import json_text
from evaluator.measures.stereoset import CANDIDATES, COMPONENTS
from evaluator.reports import html, latex, markdown, table
from evaluator.reports.export import svg
from evaluator.reports.figures import section_figures
from evaluator.reports.report import Report, Section
from evaluator.store.run import FAILURES
from evaluator.tasks import TASKS, task
from evaluator.vocabulary import SCORES, TIDY, Interval, MeasureOptions, plain_layout
from tests.reports import pages
from tests.reports.conftest import make_gest_rows, make_rows

OPTIONS = MeasureOptions(resamples=20)
MODELS = {"one": 1, "two": 1.5, "three": -0.5}
"""Models and what sets their scores apart."""


def frame(name: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Scores of MODELS with the task's columns of each row."""
    made = [
        {"model": model, "task": name, "language": "en", **row, "score": row["score"] and row["score"] * factor}
        for model, factor in (MODELS.items() if name != "gest-mt" else dict.fromkeys(MODELS, 1).items())
        for row in rows
    ]
    return pl.DataFrame(made, infer_schema_length=None)


def wave(i: int) -> float:
    """Something that varies."""
    return math.sin(7 * i + 1)


def gest(templates: tuple[str, ...] = ("3", "4")) -> list[dict[str, Any]]:
    return [
        {"template": t, "sample": i, "group": str(i % 16 + 1), "score": wave(i + 100 * len(t) + ord(t[0]))}
        | {"logprob_male": -1.0, "logprob_female": -2.0, "family": i % 3 == 0}
        for t in templates
        for i in range(48)
    ]


def mt() -> list[dict[str, Any]]:
    sides = {str(g): "female" if g < 8 else "male" for g in range(1, 17)}
    return [
        {"template": None, "sample": i, "group": g, "score": float(i % 3 > 0), "conflict": i == 3, "polarity": sides[g]}
        | {"family": i % 5 == 0}
        for i in range(64)
        for g in (str(i % 16 + 1),)
    ]


def winobias(genders: tuple[str, ...] = ("male", "female")) -> list[dict[str, Any]]:
    return [
        {"template": split, "sample": i, "group": gender, "score": wave(i)}
        for split in ("type1-dev", "type1-test")
        for i, gender in enumerate(genders * 4)
    ]


def stereoset() -> list[dict[str, Any]]:
    return [
        {"template": test, "sample": i, "group": bias, "target": f"{bias}{i % 2}", "score": wave(i)}
        | dict(zip(CANDIDATES, (wave(i), wave(i + 1), wave(i + 2)), strict=True))
        | dict.fromkeys(COMPONENTS)
        for test in ("intrasentence", "intersentence")
        for i, bias in enumerate(("gender", "race") * 4)
    ]


def filling(form: str, *, kept: bool = True) -> list[dict[str, Any]]:
    keyword = form == "keyword"
    return [
        {"template": "masked", "sample": i, "group": group, "score": wave(i), "kept": kept, "original": i // 2}
        | {name: wave(i + len(name) + len(group)) if keyword or name == "cs" else None for name in ("ss", "cs", "csk")}
        | {"f": wave(i + 5) if keyword else None, "tokens_stereotype": 1, "tokens_anti": 1, "stereotype": "x", "anti": "y"}
        for i in range(8)
        for group in (("gender", "age")[i % 2 :][:1] if form == "pairs" else ("original", "control"))
    ]


def pairs() -> list[dict[str, Any]]:
    return [
        {"template": metric, "sample": i, "group": ("race", "age")[i % 2], "score": wave(i), "direction": "stereo"}
        for metric in ("sum", "byte")
        for i in range(12)
    ]


def eurogest() -> list[dict[str, Any]]:
    return [{"template": "P", "sample": i, "row": i, "group": str(i % 16 + 1), "score": wave(i)} for i in range(48)]


def who() -> list[dict[str, Any]]:
    def shares(i: int) -> dict[str, float | None]:
        male, female = abs(wave(i)) / 2, abs(wave(i + 3)) / 2
        named = {"male": male, "female": female, "neither": 1 - male - female, "place_a": male, "place_b": female}
        rest = {"undetected": 0.25, "silent": 0.0, "refused": 0.125, "mass": abs(wave(i)), "thoughts": 0.5, "cut": 0.25}
        silent = dict.fromkeys([*named, "place_c"], None) | rest | {"undetected": 1.0, "silent": 1.0}
        return silent if i % 11 == 5 else {**named, "place_c": 1 - male - female, **rest}

    return [
        {"template": way, "sample": i, "group": str(i % 16 + 1), "score": wave(i), **shares(i)}
        for way in ("text", "logprobs")
        for i in range(48)
    ]


def scores(name: str) -> pl.DataFrame:
    """Made-up scores of a registered task."""
    made = task(name)
    kinds: dict[str, Callable[[], list[dict[str, Any]]]] = {"gest-mt": mt, "winobias": winobias, "stereoset-en": stereoset}
    kinds |= {"pairs": pairs, "eurogest-de": eurogest, "gest-who": who}
    kinds["gest-slavic"] = lambda: gest(("pair",))
    form = getattr(made, "form", None)
    rows = filling(form) if form else kinds.get(name, gest)()
    return frame(name, rows)


NAMES = [
    *("gest", "gest-mt", "gest-slavic", "winobias", "stereoset-en"),
    *("slovak-gender", "stereoset-race-control", "crows-negation", "crows-pairs"),
    *("pairs", "eurogest-de", "gest-who"),
]
"""One task of each kind: all others are these on other data."""


def test_no_kind_of_task_is_missing() -> None:
    def kind(name: str) -> tuple[Any, ...]:
        made = task(name)
        return type(made), getattr(made, "form", None), getattr(made, "clustered", None)

    assert {kind(name) for name in TASKS} <= {kind(name) for name in NAMES}


@cache
def measured(name: str) -> pl.DataFrame:
    return task(name).measure(scores(name), OPTIONS).select(pl.col(c).cast(t) for c, t in TIDY.items())


def section(name: str, rows: pl.DataFrame) -> Section:
    made = task(name)
    return Section(name, rows, made.layout(OPTIONS) or plain_layout(rows), ())


def report(*sections: Section) -> Report:
    record = {"models": {}, "tasks": {s.task: {} for s in sections}, "attempts": []}
    failures = pl.DataFrame(schema=FAILURES)
    return Report(Path("runs/made"), record, OPTIONS, sections, failures)


def plain(made: Report) -> str:
    return "\n".join(line.plain for line in table.render(made))


RENDER: dict[str, Callable[[Report], str]] = {
    "table": plain,
    "markdown": markdown.render,
    "latex": latex.render,
    "latex-long": lambda made: latex.render(made, long=True),
    "html": lambda made: pages.text(html.render(made), charts=False),
    "csv": lambda made: made.rows.write_csv(),
    "json": lambda made: json_text(made.rows),
}
DOCUMENTS = ("table", "markdown", "latex-long", "html")
BAD = {"value": math.nan, "low": -math.inf, "high": math.inf}


def spoilt(rows: pl.DataFrame, measure: str | None, column: str, bad: float | None) -> pl.DataFrame:
    """Rows of which a measure (None: every one) has `bad` in a column."""
    hit = pl.lit(True) if measure is None else pl.col("measure") == measure
    return rows.with_columns(pl.when(hit).then(pl.lit(bad, pl.Float64)).otherwise(column).alias(column))


def test_made_up_scores_give_every_measure_a_value() -> None:
    """Else there would be nothing to spoil."""
    for name in NAMES:
        assert measured(name)["value"].is_finite().all(), name


@pytest.mark.parametrize("format_", RENDER)
@pytest.mark.parametrize("name", NAMES)
def test_every_measure_may_be_undefined(name: str, format_: str) -> None:
    """For value, low and high a report with a section in which all measures are spoilt, then one for each measure."""
    rows = measured(name)
    measures = rows["measure"].unique(maintain_order=True).to_list()
    for column in ("value", "low", "high"):
        single = [] if format_ == "html" and column != "value" else measures  # a page takes ten times as long as the others
        cases = [spoilt(rows, None, column, BAD[column]), *(spoilt(rows, m, column, None) for m in single)]
        text = RENDER[format_](report(*(section(name, case) for case in cases)))
        assert ("not defined" in text) == (column == "value" and format_ in DOCUMENTS)
        assert not re.search(r"""(?<![a-z])(nan|inf|none)(?![a-z])""", text.lower())


@pytest.mark.parametrize("name", ["gest", "gest-mt", "winobias", "crows-pairs"])
def test_a_figure_with_nothing_left_says_so(name: str) -> None:
    made = section_figures(section(name, spoilt(measured(name), None, "value", None)))
    assert made
    for figure in made:
        assert figure.chart is None
        assert figure.caption == "Nothing to draw: every value is not defined."


def test_an_undefined_value_has_no_mark_and_a_word() -> None:
    rows = make_gest_rows().with_columns(pl.when(pl.col("group") == "9").then(None).otherwise("value").alias("value"))
    (figure,) = [each for each in section_figures(section("gest", rows)) if each.title.startswith("q by group")]
    drawn = svg(figure)
    assert drawn.count("not defined") == 1  # of the template that is chosen
    assert figure.data.filter(group="9")["value"].null_count() == 2


def test_rows_are_finite_or_null() -> None:
    place = {"model": "m", "template": "1", "measure": "q"}
    made = section(
        "gest",
        make_rows(
            place | {"value": math.nan, "low": 1.0, "high": 2.0},
            place | {"value": math.inf, "low": 1.0, "high": math.inf},
            place | {"value": 1.0, "low": -math.inf, "high": 2.0},
            place | {"value": None, "low": 0.0, "high": 1.0},
        ),
    ).rows
    assert made.select("value", "low", "high").rows() == [(None, None, None)] * 2 + [(1.0, None, 2.0), (None, 0.0, 1.0)]


# --- the cases that were found by use: through the measures to every format ------------------------------------------


FOUND = {
    "winobias": lambda: frame("winobias", winobias(("male",))),
    "gest-mt": lambda: frame("gest-mt", [row | {"score": None if row["group"] == "4" else row["score"]} for row in mt()]),
    "slovak-gender": lambda: frame("slovak-gender", filling("keyword", kept=False)),
    "crows-negation": lambda: frame("crows-negation", filling("sentences", kept=False)),
    # half precision can underflow: log 0 in one sample
    "gest": lambda: frame("gest", [row | ({"score": -math.inf} if row["sample"] == 0 else {}) for row in gest()]),
    # P(he) so much larger than P(she) that the ratio isn't a number that a computer holds
    "gest-demo": lambda: frame("gest-demo", [row | {"score": 800.0} for row in gest() if row["group"] in ("1", "9")]),
}


@pytest.mark.parametrize("interval", ["percentile", "bca", "published"])
@pytest.mark.parametrize("name", NAMES)
def test_measures_of_little_or_nothing(name: str, interval: Interval) -> None:
    """No scores at all, and one sample: rows without surprises rather than an exception."""
    made, options, whole = task(name), replace(OPTIONS, interval=interval), scores(name)
    few = [whole.clear(), pl.DataFrame(schema=SCORES), *(whole.filter(pl.col("sample") == i) for i in (0, 1))]
    for some in few:
        assert plain(report(section(name, made.measure(some, options))))
        assert isinstance(made.warnings(some, options), list)


@pytest.mark.parametrize("format_", RENDER)
@pytest.mark.parametrize("name", FOUND)
def test_found_by_use(name: str, format_: str) -> None:
    made = task(name)
    found = FOUND[name]()
    rows = made.measure(found, OPTIONS)
    assert isinstance(made.warnings(found, OPTIONS), list)
    text = RENDER[format_](report(section(name, rows)))
    if format_ in DOCUMENTS:
        assert "not defined" in text
    elif format_ == "json":
        assert any(row["value"] is None for row in json.loads(text))
    elif format_ == "csv":
        assert pl.read_csv(io.StringIO(text), schema=TIDY)["value"].null_count() > 0
    else:
        assert "not defined" not in text  # a dash stands for it


@pytest.mark.parametrize("name", NAMES)
def test_no_number_at_all(name: str) -> None:
    """Every sample is there and nothing of it is known: rows or none, warnings, units, tables."""
    whole = scores(name)
    numbers = [column for column, dtype in whole.schema.items() if dtype == pl.Float64]
    nothing = whole.with_columns(pl.lit(None, pl.Float64).alias(column) for column in numbers)
    made = task(name)
    assert plain(report(section(name, made.measure(nothing, OPTIONS))))
    assert isinstance(made.warnings(nothing, OPTIONS), list)
    assert isinstance(made.sampled(nothing.filter(pl.col("model") == "one"), OPTIONS), list)
