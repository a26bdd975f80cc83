"""`evaluator.compare`: a comparison as a frame, for notebooks."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.comparison.build import build, chosen, sides
from evaluator.reports.beside import sources
from evaluator.reports.results import Results, warn
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.vocabulary import Interval, MeasureOptions, Scale


def compare(
    *runs: Results | str | Path,
    models: Sequence[str] = (),
    baseline: str | None = None,
    tasks: Sequence[str] = (),
    allow: Sequence[str] = (),
    scale: Scale = "ratio",
    interval: Interval = "percentile",
    resamples: int = 1000,
    permutations: int = 10_000,
    seed: int = 0,
    published: bool = False,
    beside: Sequence[str | Path] = (),
) -> pl.DataFrame:
    """Differences of the runs' models from a baseline (default: the first) on the samples that both have.

    A row a measure, template, group and model, as `evaluator compare --format csv` gives them (columns
    `evaluator.comparison.differences.COMPARED`). `allow`: what the runs may differ in (protocol, templates, dtype).
    `published` and `beside` (runs of references): warnings say where each model lies among comparable references, which no row
    includes. Raises InputError for runs that can't be compared, naming why.
    """
    opened = [Run.open(each.path if isinstance(each, Results) else run_folder(each)) for each in runs]
    picked = chosen(sides(opened), models, baseline)
    protocol = picked[0].run.protocol if picked else "default"
    options = MeasureOptions(scale, interval, resamples, seed, protocol)
    references = sources(published, [run_folder(each) for each in beside], [run.path for run in opened])
    comparison = build(picked, options, tasks=tasks, allow=allow, permutations=permutations, references=references)
    warn(comparison.notes)
    return comparison.rows
