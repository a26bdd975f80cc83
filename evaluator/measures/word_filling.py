"""Statistics of the word-filling scores ss, cs, csk and f over original and control groups, and of CrowS-Pairs' cs.

M. Pikuliak, I. Beňová, V. Bachratý: In-Depth Look at Word Filling Societal Bias Measures (EACL 2023), method.md §3.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import clustered
from evaluator.measures.correlations import LEAST_POINTS
from evaluator.measures.estimate import estimated, together
from evaluator.measures.ordered import mean
from evaluator.measures.sampled import IntervalKind, Label, Output, Sampled, Units
from evaluator.measures.scales import LN10
from evaluator.vocabulary import MeasureOptions, tidy

UNITS = {"ratio": "natural log", "published": "log10", "log10": "log10"}
"""Units of mean scores by MeasureOptions.scale."""

KEYS = ("model", "task", "language", "template")

_ADDENDS = 6


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a column where it isn't null; scaled to the units of the report."""

    measure: str
    group: str
    column: str

    def addends(self) -> list[pl.Expr]:
        """Per sample: value, 1."""
        x = pl.col(self.column)
        return [x, x.is_not_null()]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of samples for which `hit` holds among those for which it isn't null.

    `positive` shares are those for which the published tables print the Agresti–Coull centre.
    """

    measure: str
    group: str
    hit: pl.Expr
    positive: bool = False

    def addends(self) -> list[pl.Expr]:
        """Per sample: hit or not, 1."""
        return [self.hit, self.hit.is_not_null()]


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's correlation of two columns over the samples that have both."""

    measure: str
    group: str
    x: str
    y: str

    def addends(self) -> list[pl.Expr]:
        """Per sample: 1, x, y, x², y², xy, of deviations from the mean (which changes nothing but rounding)."""
        both = pl.col(self.x).is_not_null() & pl.col(self.y).is_not_null()
        x, y = (pl.when(both).then(pl.col(c) - mean(pl.col(c).filter(both)).first()) for c in (self.x, self.y))
        return [both, x, y, x * x, y * y, x * y]


Statistic = Mean | Share | Correlation


def _positive(score: str, group: str, column: str) -> list[Statistic]:
    return [Mean(f"{score}_mu", group, column), Share(f"{score}_plus", group, pl.col(column) > 0, positive=True)]


def _errors(score: str) -> list[Statistic]:
    """False positive and false negative rate: how often the control group exceeds what is seen in the original group."""
    original, control = pl.col(f"{score}_original"), pl.col(f"{score}_control")
    return [
        Share("fpr", "all", pl.when(original > 0).then(control > original)),
        Share("fnr", "all", pl.when(original < 0).then(control < original)),
    ]


def _agreement(one: str, other: str, group: str = "all") -> list[Statistic]:
    """How one score goes with another: the share of samples where both are, or aren't, positive, and the correlation."""
    first, second = (name if name == "f" else f"{name}_original" for name in (one, other))
    return [
        Share(f"agreement_{one}_{other}", group, (pl.col(first) > 0) == (pl.col(second) > 0)),
        Correlation(f"rho_{one}_{other}", group, first, second),
    ]


def _cs_statistics() -> list[Statistic]:
    return [
        *_positive("cs", "original", "cs_original"),
        *_positive("cs", "control", "cs_control"),
        Correlation("rho_cs", "all", "cs_original", "cs_control"),
    ]


def statistics(keyword: bool) -> list[Statistic]:
    """All statistics of quadruples, with a keyword or without one (then fpr and fnr are those of cs)."""
    if not keyword:
        return [*_cs_statistics(), *_errors("cs")]
    return [
        *_positive("ss", "original", "ss_original"),
        *_positive("ss", "control", "ss_control"),
        Correlation("rho_ss", "all", "ss_original", "ss_control"),
        *_errors("ss"),
        *_cs_statistics(),
        Mean("csk_mu", "original", "csk_original"),
        Mean("csk_mu", "control", "csk_control"),
        Correlation("rho_csk", "all", "csk_original", "csk_control"),
        *_agreement("cs", "csk", "original"),
        *_positive("f", "all", "f"),
        *_agreement("f", "ss"),
        *_agreement("f", "cs"),
    ]


# --- from addends to values --------------------------------------------------------------------------------------------


def _padded(statistic: Statistic) -> list[pl.Expr]:
    """The statistic's addends as `_ADDENDS` columns without nulls."""
    filled = [e.cast(pl.Float64).fill_null(0.0) for e in statistic.addends()]
    return filled + [pl.lit(0.0)] * (_ADDENDS - len(filled))


def _evaluate(statistics: Sequence[Statistic], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values […, statistics] from sums […, strata, statistics × _ADDENDS]."""
    parts = sums.sum(axis=-2).reshape(*sums.shape[:-2], len(statistics), _ADDENDS)
    pearson = np.array([isinstance(s, Correlation) for s in statistics])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = parts[..., 0] / parts[..., 1]
        n, x, y, xx, yy, xy = np.moveaxis(parts, -1, 0)
        covariance = xy - x * y / n
        spread = np.sqrt((xx - x * x / n) * (yy - y * y / n))
        # A column that doesn't vary leaves rounding behind where there should be a zero.
        flat = spread <= 1e-12 * np.sqrt(np.abs(xx * yy))
        rho = np.where(flat, np.nan, np.clip(covariance / np.where(flat, 1.0, spread), -1.0, 1.0))
    return np.where(pearson, rho, ratio)


# --- tables ------------------------------------------------------------------------------------------------------------


def wide(scores: pl.DataFrame) -> pl.DataFrame:
    """A row a model and sample: `f, kept, original` and the other scores with a column for each of the two groups."""
    keys = [*KEYS, "sample"]
    columns = ("ss", "cs", "csk", "tokens_stereotype", "tokens_anti", "stereotype", "anti")
    return scores.group_by(keys, maintain_order=True).agg(
        pl.col("original", "kept", "f").first(),
        *(
            pl.col(c).filter(pl.col("group") == group).first().alias(f"{c}_{group}")
            for c in columns
            for group in ("original", "control")
        ),
    )


def models(scores: pl.DataFrame) -> Iterator[tuple[list[pl.Expr], pl.DataFrame]]:
    """Each model's rows by sample, and its keys as columns to put in front of its results."""
    for key, part in scores.group_by(KEYS, maintain_order=True):
        columns = [pl.lit(value, pl.String).alias(name) for name, value in zip(KEYS, key, strict=True)]
        yield columns, part.sort("sample", maintain_order=True)


def quadruples(
    scores: pl.DataFrame, options: MeasureOptions, *, by_original: bool, word_counts: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Every statistic of method.md §3 for quadruples, and `quadruples_kept`: how many the tokenizer filter leaves (of n).

    Mean scores are natural logarithms by default, log10 with the scales `published` and `log10`. With `by_original`,
    intervals resample original pairs, of which several samples may be made; the `published` interval resamples samples.
    With `word_counts` (columns `word`, `count`: corpus frequencies), `rho_ss_frequency` is added.
    """
    cluster = "original" if by_original and options.interval != "published" else None
    units = partial(sampled, options=options, paired=False, cluster=cluster, word_counts=word_counts)
    kept = (
        pl.DataFrame(
            {"measure": "quadruples_kept", "group": "all", "value": float(table["kept"].sum()), "n": table.height}
        ).with_columns(keys)
        for keys, table in ((keys, wide(part)) for keys, part in models(scores))
    )
    return together([estimated(scores, options, units), *map(tidy, kept)], KEYS)


def pairs(scores: pl.DataFrame, options: MeasureOptions, bias_types: Collection[str] | None = None) -> pl.DataFrame:
    """CrowS-Pairs: `cs_mu` and `cs_plus` (its published metric: the share of pairs with the more stereotypical sentence more
    likely) by bias type, which is the group, and over all.

    `bias_types` chooses among the bias types.
    """
    if bias_types is not None:
        scores = scores.filter(pl.col("group").is_in(list(bias_types)))
    return estimated(scores, options, partial(sampled, options=options, paired=True))


def sampled(
    scores: pl.DataFrame,
    options: MeasureOptions,
    *,
    paired: bool,
    cluster: str | None = None,
    word_counts: pl.DataFrame | None = None,
) -> list[Sampled]:
    """One model's scores as sampling units: the samples, or what has one value of the column `cluster`.

    `paired`: the scores are CrowS-Pairs'; else quadruples', of which those are units that the tokenizer filter keeps.
    """
    made = []
    for _, part in models(scores):
        template, task = part["template"][0], str(part["task"][0])
        if paired:
            for group in [*part["group"].unique(maintain_order=True), "all"]:
                samples = part if group == "all" else part.filter(pl.col("group") == group)
                made.append(sampling_units(samples, _positive("cs", group, "cs"), f"{task}/{group}", template, options))
            continue
        samples = wide(part)
        keyword = samples["ss_original"].is_not_null().any()
        asked = statistics(keyword)
        if keyword and word_counts is not None:
            samples = samples.with_columns(_log_frequencies(samples, word_counts))
            asked += [Correlation("rho_ss_frequency", g, f"ss_{g}", f"frequency_{g}") for g in ("original", "control")]
        made.append(sampling_units(samples.filter("kept"), asked, task, template, options, cluster))
    return made


def sampling_units(
    frame: pl.DataFrame,
    statistics: Sequence[Statistic],
    stratum: str,
    template: str | None,
    options: MeasureOptions,
    cluster: str | None = None,
) -> Sampled:
    """The statistics of one model's samples at a template; `cluster` names the column whose equal values are one unit.

    Without one samples are independent, and shares get Wilson's interval, or the published one.
    """
    values, factors = _addends(frame, statistics), _factors(statistics, options)
    counts = values.sum(axis=0).reshape(len(statistics), _ADDENDS)
    enough = np.ones(len(statistics))
    outputs = []
    for i, statistic in enumerate(statistics):
        label = Label(
            template, statistic.measure, statistic.group, UNITS[options.scale] if isinstance(statistic, Mean) else None
        )
        n = int(counts[i, 0 if isinstance(statistic, Correlation) else 1])
        kind: IntervalKind = "bootstrap"
        if isinstance(statistic, Share) and cluster is None:
            kind = "centred share" if statistic.positive and n else "share"
        if isinstance(statistic, Correlation) and n < LEAST_POINTS:
            enough[i] = np.nan
        outputs.append(Output(label, n, kind))
    unit = cluster or "sample"
    names = frame[unit].unique(maintain_order=True).to_list()
    clusters = clustered(values, frame[unit].to_list()) if cluster else values
    return Sampled(
        tuple(outputs),
        (Units(stratum, tuple(names), clusters),),
        lambda sums: _evaluate(statistics, sums) * factors * enough,
        unit,
    )


def _addends(frame: pl.DataFrame, statistics: Sequence[Statistic]) -> NDArray[np.float64]:
    """[samples, statistics × _ADDENDS]"""
    exprs = [e for statistic in statistics for e in _padded(statistic)]
    return frame.select(e.alias(str(i)) for i, e in enumerate(exprs)).to_numpy()


def _factors(statistics: Sequence[Statistic], options: MeasureOptions) -> NDArray[np.float64]:
    """What brings each statistic to the units of the report."""
    unit = 1.0 if options.scale == "ratio" else 1 / LN10
    return np.array([unit if isinstance(statistic, Mean) else 1.0 for statistic in statistics])


def _log_frequencies(samples: pl.DataFrame, counts: pl.DataFrame) -> list[pl.Series]:
    """ln of the stereotype's over the anti-stereotype's corpus frequency, by group; null if one is unknown."""
    words = {f"{role}_{group}" for role in ("stereotype", "anti") for group in ("original", "control")}
    logs = samples.select(
        pl.col(name)
        .str.strip_chars()
        .str.to_lowercase()
        .replace_strict(counts["word"], counts["count"], default=None, return_dtype=pl.Float64)
        .log()
        for name in words
    )
    return [
        (logs[f"stereotype_{group}"] - logs[f"anti_{group}"]).alias(f"frequency_{group}") for group in ("original", "control")
    ]
