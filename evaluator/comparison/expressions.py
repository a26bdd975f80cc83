"""`--fail-if`: a comparison of one measure with a number, such as `g_s > 1.3` or `delta(g_s) > 0.05`. Pure.

    EXPRESSION  VALUE < | <= | > | >= NUMBER
    VALUE       RATE, low(RATE), high(RATE) (the bounds of its 95% interval), delta(RATE) (model − baseline), p(RATE) (of the
                paired test, after Holm's correction), abs(VALUE), low(delta(RATE)), high(delta(RATE))
    RATE        a measure, or one of its groups: g_s, q[7], SS[gender], SS['the term']

Where a measure has a row over all templates that row is meant, else the rows of every template. A value that isn't defined
passes no check: it is an error.
"""

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from evaluator.reports.blocks import OVER_ALL
from evaluator_serving.errors import InputError

OPERATORS: dict[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
}
COLUMNS = {
    (): ("rates", "value"),
    ("low",): ("rates", "low"),
    ("high",): ("rates", "high"),
    ("delta",): ("differences", "difference"),
    ("low", "delta"): ("differences", "low"),
    ("high", "delta"): ("differences", "high"),
    ("p",): ("differences", "p_holm"),
}
"""Functions around a rate, outermost first, to the table and column that hold their value."""


@dataclass(frozen=True, slots=True)
class Check:
    """One parsed expression.

    Attributes:
        text: as it was written.
        measure, group: the rate; group None: the rows without a group, or of group `all`.
        table, column: where its value stands.
        absolute: whether its size alone counts.
        compare, threshold: what a value must not be, and against which number.
    """

    text: str
    measure: str
    group: str | None
    table: str
    column: str
    absolute: bool
    compare: Callable[[float, float], bool]
    threshold: float

    @property
    def of_differences(self) -> bool:
        """Whether a baseline is needed."""
        return self.table == "differences"

    def holds(self, value: float) -> bool:
        """Whether this value crosses the threshold."""
        return self.compare(abs(value) if self.absolute else value, self.threshold)


@dataclass(frozen=True, slots=True)
class Crossed:
    """A row that fails a check."""

    check: Check
    model: str
    place: str
    value: float

    def __str__(self) -> str:
        return f"{self.check.text}: {self.model} has {self.value:.4g} ({self.place})"


def parse(text: str) -> Check:
    """The check that an expression means. Raises InputError with an example where it means none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(text, "not an expression") from None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in OPERATORS:
        raise _wrong(text, "write one comparison (<, <=, > or >=) of a value with a number")
    _, compare = OPERATORS[type(tree.ops[0])]
    threshold = _number(tree.comparators[0], text)
    functions: list[str] = []
    node = tree.left
    while isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or len(node.args) != 1 or node.keywords:
            raise _wrong(text, "a function takes one argument")
        functions.append(node.func.id)
        node = node.args[0]
    absolute = functions[:1] == ["abs"]
    chosen = COLUMNS.get(tuple(functions[1:] if absolute else functions))
    if chosen is None:
        raise _wrong(text, f"unknown function {'('.join(functions)}(…): use delta, low, high, p, abs")
    measure, group = _rate(node, text)
    return Check(text.strip(), measure, group, *chosen, absolute, compare, threshold)


def _rate(node: ast.expr, text: str) -> tuple[str, str | None]:
    group = None
    if isinstance(node, ast.Subscript):
        name = node.slice
        if not isinstance(name, ast.Name | ast.Constant):
            raise _wrong(text, "a group's name in brackets needs quotes unless it is a word or a number")
        group = name.id if isinstance(name, ast.Name) else str(name.value)
        node = node.value
    if not isinstance(node, ast.Name):
        raise _wrong(text, "the left side must be a measure's name")
    return node.id, group


def _number(node: ast.expr, text: str) -> float:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(text, "the right side must be a number")
    return float(value)


def _wrong(text: str, why: str) -> InputError:
    examples = "'g_s > 1.3', 'delta(g_s) > 0.05' or 'abs(delta(q[7])) > 0.1'"
    return InputError(f"--fail-if {text!r}: {why}: write for example {examples}")


def crossed(check: Check, rates: pl.DataFrame, differences: pl.DataFrame) -> list[Crossed]:
    """The rows that fail a check. `rates` are tidy rows, `differences` a comparison's.

    Raises InputError where no row has this measure and group, or a value isn't defined.
    """
    table = differences if check.of_differences else rates
    found = _rows(table, check)
    if found.is_empty():
        have = sorted(set(table["measure"]))
        what = f"{check.measure}[{check.group}]" if check.group else check.measure
        raise InputError(f"--fail-if {check.text!r}: no model has a rate {what}: there are {', '.join(have) or 'none'}")
    return list(_failing(check, found))


def _failing(check: Check, rows: pl.DataFrame) -> Iterator[Crossed]:
    for row in rows.iter_rows(named=True):
        place = _place(row)
        if row[check.column] is None:
            raise InputError(
                f"--fail-if {check.text!r} cannot be evaluated: the value is not defined for {row['model']} ({place})"
            )
        if check.holds(row[check.column]):
            yield Crossed(check, row["model"], place, row[check.column])


def _rows(table: pl.DataFrame, check: Check) -> pl.DataFrame:
    plain = pl.col("group").is_null() | (pl.col("group") == "all")
    mine = table.filter(pl.col("measure") == check.measure, plain if check.group is None else pl.col("group") == check.group)
    whole = mine.filter(pl.col("template").is_in(OVER_ALL))
    # a model without a row over all templates (one template only) keeps its rows
    keys = [key for key in ("model", "task", "language") if key in mine.columns]
    return pl.concat([whole, mine.join(whole, on=keys, how="anti", nulls_equal=True)])


def _place(row: dict[str, Any]) -> str:
    parts = (row["task"], row["language"], f"template {row['template']}" if row["template"] else None)
    return ", ".join(part for part in parts if part)
