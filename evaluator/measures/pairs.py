"""Statistics of sentence pairs (method.md §5): how often, and by how much, the more stereotypical sentence is likelier.

With d = log P(more) - log P(less) of a pair under one metric (the template), for each model and language, by group and overall:

    share      of the pairs with d > 0, ties half; 0.5 is unbiased
    mean       of d, natural logarithms, or log10 on the scales `published` and `log10`
    mean_abs   of |d|, likewise (lm-evaluation-harness's `likelihood_diff`, where `share` is its `pct_stereotype`)
    p          two-sided sign test of share against 0.5, ties left out; n = the pairs without them
    p_holm     the same of a group, adjusted over the groups (Holm)
and by direction, where the pairs have one, `share` with the direction (`stereo`, `antistereo`) as its group.
"""

import math

import numpy as np
import polars as pl

from evaluator.measures.estimate import grouped_by
from evaluator.measures.paired import holm
from evaluator.measures.sampled import Sampled
from evaluator.measures.statistics import CELL, Mean, Share, Statistic, cells, sampling_units
from evaluator.vocabulary import TIDY, MeasureOptions, tidy

MEASURES = ("share", "mean", "mean_abs", "p", "p_holm")

_ABS = "abs"

_HALF = pl.when(pl.col("score") == 0).then(0.5).otherwise((pl.col("score") > 0).cast(pl.Float64))


def with_summaries(rates: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The rates (columns TIDY) of all models with the sign tests' p."""
    tests = (tidy(_tests(part).with_columns(keys)) for keys, part in cells(scores.drop_nulls("score")))
    return grouped_by([rates, *tests], CELL)


def sampled(scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
    """One model's pairs (columns SCORES with `direction`) as sampling units, metric by metric: all but the sign test's p."""
    made = []
    for _, part in cells(scores.drop_nulls("score").with_columns(pl.col("score").abs().alias(_ABS))):
        template, task = part["template"][0], part["task"][0]
        for group in (*part["group"].unique(maintain_order=True), "all"):
            chosen = part if group == "all" else part.filter(pl.col("group") == group)
            made.append(sampling_units(chosen, _statistics(group), f"{task}/{group}", template, options))
        for direction in part["direction"].drop_nulls().unique(maintain_order=True):
            chosen = part.filter(pl.col("direction") == direction)
            made.append(sampling_units(chosen, [Share("share", direction, _HALF)], f"{task}/{direction}", template, options))
    return made


def _statistics(group: str) -> list[Statistic]:
    return [Share("share", group, _HALF), Mean("mean", group, "score"), Mean("mean_abs", group, _ABS)]


def _tests(scores: pl.DataFrame) -> pl.DataFrame:
    """p of every group and of all, and the groups' adjusted ones."""
    groups = scores["group"].unique(maintain_order=True).to_list()
    above, below = (pl.col("score") > 0).sum(), (pl.col("score") < 0).sum()
    counts = {group: (up, down) for group, up, down in scores.group_by("group").agg(above.alias("up"), below).iter_rows()}
    p = np.array([sign_test(*counts[group]) for group in groups])
    total = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = [
        *(("p", group, value, sum(counts[group])) for group, value in zip(groups, p, strict=True)),
        ("p", "all", sign_test(*total), sum(total)),
        *(("p_holm", group, value, sum(counts[group])) for group, value in zip(groups, holm(p), strict=True)),
    ]
    return pl.DataFrame(rows, schema={name: TIDY[name] for name in ("measure", "group", "value", "n")}, orient="row")


def sign_test(above: int, below: int) -> float:
    """Exact two-sided p of so many pairs above and below, where both are as likely; 1 for none."""
    n, k = above + below, min(above, below)
    top = math.lgamma(n + 1) - n * math.log(2)
    return min(1.0, 2 * math.fsum(math.exp(top - math.lgamma(i + 1) - math.lgamma(n - i + 1)) for i in range(k + 1)))
