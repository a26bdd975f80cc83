"""A board as files: leaderboard.csv, one row per model, and leaderboard.html, one page that needs nothing else."""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from evaluator.datasets.registry import PUBLISHED
from evaluator.ranking.board import Board
from evaluator.ranking.collect import collect
from evaluator.reports.beside import sources
from evaluator.reports.blocks import digits_for
from evaluator.reports.page import OFFENSIVE, as_script, datatables, inline, page_style
from evaluator.reports.results import Results
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.parameters import parse_settings
from evaluator.tasks.stored import settings_of
from evaluator.vocabulary import MeasureOptions, RateChoices
from evaluator_serving.errors import InputError

PAGE, TABLE = "leaderboard.html", "leaderboard.csv"
_FOLDER = Path(__file__).parent
_CELL = ("value", "low", "high", "rank", "of", "rank_low", "rank_high", "swaps")


def leaderboard(
    *runs: Results | str | Path,
    out: str | Path | None = None,
    tasks: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    models: Path | None = None,
    published: bool = False,
    **choices: Unpack[RateChoices],
) -> pl.DataFrame:
    """The models of runs in one table: main values with intervals, and ranks with how far resampling moves them.

    One row per model: its run, facts and date, then for each main number COLUMN its `.value`, `.low`, `.high`, how it was
    asked (`.way`), why it is not ranked (`.partial`), `.rank` among `.of` models asked in the same way (the highest value
    first), `.rank_low` and `.rank_high` (the central 95% of the ranks over resamples), and `.swaps`, the share of resamples in
    which the next lower model is not lower. With `out`, leaderboard.html and leaderboard.csv are written into that folder.
    `published`: the published models too. `models` is a CSV file of facts (see `evaluator report --models`),
    `choices` are those of the rates (see `evaluator.vocabulary.RateChoices`).

    Raises InputError for wrong runs, tasks and tables, and where the folder can't be written.
    """
    opened = [Run.open(each.path if isinstance(each, Results) else run_folder(each)) for each in runs]
    opened += [source.run for source in sources(published, ())]
    if not opened:
        raise InputError(f"a leaderboard needs runs: name their folders, or ask for the {PUBLISHED} scores")
    types = {name: kind for run in opened for name, kind in settings_of(run).items()}
    options = MeasureOptions(**choices, settings=parse_settings(types, settings or {}))
    board = collect(opened, options, tasks, models, "Leaderboard")
    ranked = board.ranked()
    if ranked["rank"].is_null().all():
        why = f"{board.entries[ranked['entry'][0]].model}: {ranked['partial'][0]}"
        remedy = "repeat the run's command without a limit to score the rest"
        warnings.warn(f"no model is ranked, because ranks need all samples ({why}); {remedy}", stacklevel=2)
    table = board.wide(ranked)
    if out is not None:
        write(board, ranked, table, Path(out))
    return table


def write(board: Board, ranked: pl.DataFrame, table: pl.DataFrame, folder: Path) -> None:
    """Write both files into a folder. Raises InputError where it can't be written."""
    page = render(board, ranked)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TABLE).write_text(table.write_csv(), encoding="utf8")
        (folder / PAGE).write_text(page, encoding="utf8")
    except OSError as error:
        raise InputError(f"can't write the leaderboard to {folder}: {error.strerror}: choose another folder") from None


def render(board: Board, ranked: pl.DataFrame) -> str:
    """The page's text. Raises InputError where Jinja2 isn't installed."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        remedy = "pip install 'stereotype-evaluator[report]'"
        raise InputError(f"a leaderboard's page needs Jinja2, which isn't installed: {remedy}") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_FOLDER / "page.html").read_text(encoding="utf8"))
    text: str = template.render(
        board=board,
        offensive=OFFENSIVE,
        table=TABLE,
        meanings=list(dict.fromkeys(column.meaning for column in board.columns if column.meaning)),
        style=Markup(page_style() + (_FOLDER / "page.css").read_text(encoding="utf8")),
        library=Markup(inline(datatables())),
        script=Markup(inline((_FOLDER / "page.js").read_text(encoding="utf8"))),
        data=Markup(as_script(page_data(board, ranked))),
    )
    return text


def page_data(board: Board, ranked: pl.DataFrame) -> dict[str, Any]:
    """What the page's script draws: columns, the ways in which models were asked, and one row per model."""
    ways = ranked["way"].unique(maintain_order=True).to_list()
    place = {way: at for at, way in enumerate(ways)}
    cells: list[list[Any]] = [[None] * len(board.columns) for _ in board.entries]
    for row in ranked.iter_rows(named=True):
        numbers = [_short(row[name]) for name in _CELL]
        cells[row["entry"]][row["column"]] = [*numbers, place[row["way"]], row["partial"]]
    largest = dict(ranked.group_by("column").agg(pl.col("value").abs().max()).iter_rows())
    columns = [
        {"shown": column.shown, "language": column.language, "digits": digits_for(largest.get(at))}
        for at, column in enumerate(board.columns)
    ]
    rows = [
        [entry.model, entry.run, entry.family, entry.parameters, entry.date, *mine]
        for entry, mine in zip(board.entries, cells, strict=True)
    ]
    return {"columns": columns, "ways": ways, "rows": rows}


def _short(value: float | int | None) -> float | int | None:
    """A number with six digits that count: what a page shows has fewer."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")
