"""Statistics of the word-filling scores ss, cs, csk and f over original and control groups, and of CrowS-Pairs' cs.

M. Pikuliak, I. Beňová, V. Bachratý: In-Depth Look at Word Filling Societal Bias Measures (EACL 2023), method.md §3.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Bootstrap, Stratum, clustered
from evaluator.measures.correlations import LEAST_POINTS
from evaluator.measures.intervals import BOOTSTRAPS, share_bounds
from evaluator.measures.ordered import mean
from evaluator.measures.sampled import Label, Sampled, Units
from evaluator.measures.scales import LN10
from evaluator.vocabulary import TIDY, MeasureOptions, tidy

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


def estimate(
    frame: pl.DataFrame,
    statistics: Sequence[Statistic],
    stratum: str,
    options: MeasureOptions,
    bootstrap: Bootstrap,
    cluster: str | None = None,
) -> pl.DataFrame:
    """The statistics of one model's samples as rows `measure, group, value, low, high, n, scale, interval`.

    `frame` has a row a sample; `bootstrap` is shared by all models; `cluster` names the column whose equal values are
    resampled together (None: samples are independent, and shares get Wilson's interval, or the published one). Correlations
    over fewer than LEAST_POINTS samples are null.
    """
    values = _addends(frame, statistics)
    units = values if cluster is None else clustered(values, frame[cluster].to_list())

    def evaluate(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return _evaluate(statistics, sums)

    found = bootstrap.estimate([Stratum(stratum, units)], evaluate)
    totals = values.sum(axis=0).reshape(len(statistics), _ADDENDS)
    rows = []
    for i, statistic in enumerate(statistics):
        value, low, high = found.value[i], found.low[i], found.high[i]
        n = totals[i, 0] if isinstance(statistic, Correlation) else totals[i, 1]
        unit, kind = None, BOOTSTRAPS[options.interval]
        if isinstance(statistic, Mean):
            factor = 1.0 if options.scale == "ratio" else 1 / LN10
            value, low, high, unit = value * factor, low * factor, high * factor, UNITS[options.scale]
        elif isinstance(statistic, Correlation) and n < LEAST_POINTS:
            value = low = high = math.nan
        elif isinstance(statistic, Share) and cluster is None and n:
            bounds, kind = share_bounds(totals[i, 0], n, options.interval)
            low, high = bounds.low, bounds.high
            if statistic.positive and options.interval == "published":
                value = bounds.centre
        known = kind if math.isfinite(low) else None
        rows.append((statistic.measure, statistic.group, *map(_number, (value, low, high)), int(n), unit, known))
    schema = {name: TIDY[name] for name in ("measure", "group", "value", "low", "high", "n", "scale", "interval")}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


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


def _tidy(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    if not frames:
        return pl.DataFrame(schema=TIDY)
    return tidy(pl.concat(frames, how="diagonal_relaxed"))


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
    frames = []
    bootstrap = Bootstrap.of(options)
    cluster = "original" if by_original and options.interval != "published" else None
    for keys, part in models(scores):
        samples = wide(part)
        keyword = samples["ss_original"].is_not_null().any()
        asked = statistics(keyword)
        if keyword and word_counts is not None:
            samples = samples.with_columns(_log_frequencies(samples, word_counts))
            asked += [Correlation("rho_ss_frequency", g, f"ss_{g}", f"frequency_{g}") for g in ("original", "control")]
        kept = samples.filter("kept")
        found = estimate(kept, asked, str(part["task"][0]), options, bootstrap, cluster)
        count = pl.DataFrame({"measure": "quadruples_kept", "group": "all", "value": float(kept.height), "n": samples.height})
        frames.append(pl.concat([found, count], how="diagonal_relaxed").with_columns(keys))
    return _tidy(frames)


def pairs(scores: pl.DataFrame, options: MeasureOptions, bias_types: Collection[str] | None = None) -> pl.DataFrame:
    """CrowS-Pairs: `cs_mu` and `cs_plus` (its published metric: the share of pairs with the more stereotypical sentence more
    likely) by bias type, which is the group, and over all.

    `bias_types` chooses among the bias types.
    """
    if bias_types is not None:
        scores = scores.filter(pl.col("group").is_in(list(bias_types)))
    frames = []
    bootstrap = Bootstrap.of(options)
    for keys, part in models(scores):
        types = part["group"].unique(maintain_order=True).to_list()
        for group in [*types, "all"]:
            samples = part if group == "all" else part.filter(pl.col("group") == group)
            stratum = f"{part['task'][0]}/{group}"
            found = estimate(samples, _positive("cs", group, "cs"), stratum, options, bootstrap)
            frames.append(found.with_columns(keys))
    return _tidy(frames)


def sampled(scores: pl.DataFrame, options: MeasureOptions, *, paired: bool, by_original: bool) -> list[Sampled]:
    """One model's scores as sampling units: the samples, or (`by_original`) the original pairs that they were made of.

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
        asked = statistics(samples["ss_original"].is_not_null().any())
        cluster = "original" if by_original else "sample"
        made.append(sampling_units(samples.filter("kept"), asked, task, template, options, cluster))
    return made


def sampling_units(
    frame: pl.DataFrame,
    statistics: Sequence[Statistic],
    stratum: str,
    template: str | None,
    options: MeasureOptions,
    cluster: str = "sample",
) -> Sampled:
    """The statistics of one model's samples at a template; `cluster` names the column whose equal values are one unit."""
    values, factors = _addends(frame, statistics), _factors(statistics, options)
    names = frame[cluster].unique(maintain_order=True).to_list()
    labels = tuple(
        Label(template, s.measure, s.group, UNITS[options.scale] if isinstance(s, Mean) else None) for s in statistics
    )
    return Sampled(
        labels,
        (Units(stratum, tuple(names), clustered(values, frame[cluster].to_list())),),
        lambda sums: _evaluate(statistics, sums) * factors,
        np.zeros(len(labels), dtype=bool),
        cluster,
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
