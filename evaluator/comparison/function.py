"""Comparisons, for `evaluator compare` and for notebooks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

import polars as pl

from evaluator.comparison.build import Comparison, build, select_sides, sides
from evaluator.comparison.expressions import parse
from evaluator.reports.beside import sources
from evaluator.reports.results import Results, warn
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.vocabulary import MeasureOptions, RateChoices


def comparison(
    runs: Sequence[Results | str | Path],
    models: Sequence[str] = (),
    baseline: str | None = None,
    *,
    tasks: Sequence[str] = (),
    checks: Sequence[str] = (),
    allow: Sequence[str] = (),
    permutations: int = 10_000,
    published: bool = False,
    beside: Sequence[str | Path] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
    **choices: Unpack[RateChoices],
) -> Comparison:
    """Compare the runs' models with a baseline (default: the first model) on the samples that both have.

    Args:
        models, tasks: only these (default: all of the runs).
        checks: expressions such as `g_s > 1.3`, for `Comparison.failing`; one model will do where none is of a difference.
        allow: what the runs may differ in (protocol, templates, dtype).
        published, beside: references that are shown beside the models: the published ones, those of other runs.
        progress: called with the number of pairs that are compared, and of all pairs.
        choices: see `evaluator.vocabulary.RateChoices`.

    Raises InputError for runs that can't be compared, naming why, and for a check that is no expression.
    """
    parsed = tuple(parse(text) for text in checks)
    opened = [Run.open(each.path if isinstance(each, Results) else run_folder(each)) for each in runs]
    picked = select_sides(sides(opened), models, baseline)
    references = sources(published, [run_folder(each) for each in beside], [run.path for run in opened])
    protocol = picked[0].run.protocol if picked else "default"
    return build(
        picked,
        MeasureOptions(**choices, protocol=protocol),
        tasks=tasks,
        checks=parsed,
        allow=allow,
        permutations=permutations,
        references=references,
        progress=progress,
    )


def compare(
    *runs: Results | str | Path,
    models: Sequence[str] = (),
    baseline: str | None = None,
    tasks: Sequence[str] = (),
    allow: Sequence[str] = (),
    permutations: int = 10_000,
    published: bool = False,
    beside: Sequence[str | Path] = (),
    **choices: Unpack[RateChoices],
) -> pl.DataFrame:
    """Differences of the runs' models from a baseline (default: the first) on the samples that both have.

    A row a measure, template, group and model, as `evaluator compare --format csv` gives them (columns
    `evaluator.comparison.differences.COMPARED`). `allow`: what the runs may differ in (protocol, templates, dtype).
    `choices`: see `evaluator.vocabulary.RateChoices`. `published` and `beside` (runs of references): warnings say where each
    model lies among comparable references, which no row includes. Raises InputError for runs that can't be compared.
    """
    made = comparison(
        runs,
        models,
        baseline,
        tasks=tasks,
        allow=allow,
        permutations=permutations,
        published=published,
        beside=beside,
        **choices,
    )
    warn(made.notes)
    return made.rows
