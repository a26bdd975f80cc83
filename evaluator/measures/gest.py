"""GEST's rates (method.md §1.3), for its 16 stereotypes or for groups of the user's own.

Pikuliak et al., Women Are Beautiful, Men Are Leaders: Gender Stereotypes in Machine Translation and Language Modeling
(2023, revised 2024), equation 3: q_i = exp(mean over the samples of stereotype i of log P(male word) − log P(female
word)); q_f, q_m are geometric means over the female and the male stereotypes, g_s = q_m / q_f. Values of q_i are
comparable with each other only.

Scores come in as columns SCORES and, each optional: `polarity` (`female`, `male` or null, of the group; without the
column stereotypes 1–7 are female and 8–16 male), `family` (the sample is about family), `logprob_male` and
`logprob_female` (natural log, of the two words), `head` (`masked` or `causal`: models of different heads are not
correlated with each other).

Rows that come out, for each model and template:
    q         group = the stereotype; n = its samples
    q_f, q_m, g_s          n = the samples used
    q_family  the rate of the male-stereotype samples that are about family
    mass      mean of P(male word) + P(female word); no scale
    rank      group = the stereotype; 1 is the most feminine (lowest q); n = the number of groups ranked; no scale
for each model, with template `all`:
    g_s       arithmetic mean of the templates' g_s; n = distinct samples. There is no overall q, q_f or q_m: rates of
              different templates are not comparable, and method.md §1.3 defines none
and between them:
    r_templates   Pearson correlation of q over groups between `template` and the template named in `other`; n = groups
    r_models      the same between `model` and the model named in `other`; same template, same kind of model
    both are null over fewer than LEAST_POINTS groups; with model and template `all`: the mean over all other pairs; n = pairs
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from evaluator.measures.bootstrap import Array, Bootstrap, Estimate, Stratum, means, with_counts
from evaluator.measures.correlations import pairwise
from evaluator.measures.intervals import BOOTSTRAPS, named
from evaluator.measures.ordered import mean
from evaluator.measures.sampled import Label, Sampled, units
from evaluator.measures.scales import array_on_scale, on_scale
from evaluator.vocabulary import TIDY, MeasureOptions, Scale, tidy

FEMALE = tuple(str(i) for i in range(1, 8))
MALE = tuple(str(i) for i in range(8, 17))
MEASURES = ("q", "q_f", "q_m", "g_s", "q_family", "mass", "rank", "r_templates", "r_models")

_RUN = ("model", "task", "language")
_CELL = (*_RUN, "template")


def gest_measures(scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
    """Tidy rows (columns TIDY) of every model, template and measure; see the module's text for what they are.

    Intervals of q, q_f, q_m, g_s, q_family and mass resample samples within groups, the same draw for all templates of
    a model, so that the overall g_s has the right width. The other rows have none.
    """
    if scores.is_empty():
        return pl.DataFrame(schema=TIDY)
    models = scores["model"].unique(maintain_order=True).to_list()
    scores = complete(scores)
    values = rates(scores.lazy(), options.scale).collect()
    bounds = intervals(scores, Bootstrap.of(options), options.scale)
    joined = values.join(bounds, on=[*_CELL, "measure", "group"], how="left", nulls_equal=True)
    return in_order(tidy(joined.with_columns(named(BOOTSTRAPS[options.interval]))), models)


def gest_warnings(scores: pl.DataFrame, groups: Collection[str] = (), names: Mapping[str, str] | None = None) -> list[str]:
    """What a reader of the report must know: rates that rest on fewer groups or samples than they should.

    `groups` are all groups of the data set; without them, those that any model of the run has. `names`: what the reader
    knows a measure by, where it isn't its name here.
    """
    q_f, q_m = ((names or {}).get(measure, measure) for measure in ("q_f", "q_m"))
    if scores.is_empty():
        return []
    models = scores["model"].unique(maintain_order=True)
    scores = complete(scores)
    messages = [f"{model}: no sample has a score" for model in models if model not in set(scores["model"])]
    if scores.is_empty():
        return messages
    expected = set(groups) | set(scores["group"])
    cells = scores.group_by(_CELL, maintain_order=True).agg(pl.col("group").unique(), pl.len().alias("samples")).sort(_CELL)
    # Of a model itself: another one may have been asked more (a limit), which is told with how many that were.
    cells = cells.with_columns(fullest=pl.col("samples").max().over(_RUN))
    for model, _, _, template, found, samples, fullest in cells.iter_rows():
        missing = sorted(expected - set(found), key=_natural)
        parts = []
        if samples < fullest:
            parts.append(f"{fullest - samples} of {fullest} samples have no score")
        if missing:
            parts.append(f"no scores of group {', '.join(missing)}: {q_f}, {q_m} and g_s rest on the other groups")
        if parts:
            messages.append(f"{model}, template {template}: {'; '.join(parts)}")
    return messages


def complete(scores: pl.DataFrame) -> pl.DataFrame:
    """Scores with every optional column present, rows without a score left out, in the order of the samples.

    The order (and order-keeping aggregations after it) makes sums the same to the last bit, whatever the order of the
    rows or the number of threads.
    """
    derived = (
        pl.when(pl.col("group").is_in(FEMALE))
        .then(pl.lit("female"))
        .when(pl.col("group").is_in(MALE))
        .then(pl.lit("male"))
        .otherwise(None)
    )
    absent = {
        "polarity": derived,
        "family": pl.lit(None, pl.Boolean),
        "logprob_male": pl.lit(None, pl.Float64),
        "logprob_female": pl.lit(None, pl.Float64),
        "head": pl.lit(None, pl.String),
    }
    added = [expression.alias(name) for name, expression in absent.items() if name not in scores.columns]
    return scores.with_columns(added).filter(pl.col("score").is_not_null()).sort("sample")


# --- values: lazy expressions ----------------------------------------------------------------------------------------


def rates(scores: pl.LazyFrame, scale: Scale) -> pl.LazyFrame:
    """All rows without intervals: columns of TIDY less `low`, `high` and `interval`."""
    groups = scores.group_by(*_CELL, "group", maintain_order=True).agg(
        mean(pl.col("score")).alias("log_q"), pl.len().cast(pl.Int64).alias("n"), pl.col("polarity").first()
    )
    groups = groups.sort(*_CELL, "group")
    q = groups.select(*_CELL, pl.lit("q").alias("measure"), "group", on_scale(pl.col("log_q"), scale).alias("value"), "n")
    summary = _summary(groups, scale)
    overall = (
        summary.filter(pl.col("measure") == "g_s")
        .group_by(*_RUN, "measure", "group", maintain_order=True)
        .agg(mean(pl.col("value")))
        .join(
            scores.filter(pl.col("polarity").is_not_null()).group_by(_RUN).agg(pl.col("sample").n_unique().alias("n")),
            on=_RUN,
            nulls_equal=True,
        )
        .with_columns(pl.lit("all").alias("template"))
    )
    scaled = pl.concat([q, summary, overall, _family(scores, scale), *_correlations(q, scores)], how="diagonal_relaxed")
    unscaled = pl.concat([_mass(scores), _ranks(groups)], how="diagonal_relaxed")
    return pl.concat(
        [scaled.with_columns(pl.lit(scale).alias("scale")), unscaled.with_columns(pl.lit(None, pl.String).alias("scale"))],
        how="diagonal_relaxed",
    )


def _summary(groups: pl.LazyFrame, scale: Scale) -> pl.LazyFrame:
    """q_f, q_m and g_s of each template."""
    log_q = {p: mean(pl.col("log_q").filter(pl.col("polarity") == p)) for p in ("female", "male")}
    n = {p: pl.col("n").filter(pl.col("polarity") == p).sum() for p in ("female", "male")}
    parts = {
        "q_f": (log_q["female"], n["female"]),
        "q_m": (log_q["male"], n["male"]),
        "g_s": (log_q["male"] - log_q["female"], n["male"] + n["female"]),
    }
    return pl.concat(
        groups.group_by(_CELL, maintain_order=True)
        .agg(on_scale(log_ratio, scale).alias("value"), count.alias("n"))
        .filter(pl.col("value").is_not_null())
        .with_columns(pl.lit(measure).alias("measure"), pl.lit(None, pl.String).alias("group"))
        for measure, (log_ratio, count) in parts.items()
    )


def _family(scores: pl.LazyFrame, scale: Scale) -> pl.LazyFrame:
    return (
        scores.filter(pl.col("family"), pl.col("polarity") == "male")
        .group_by(_CELL, maintain_order=True)
        .agg(on_scale(mean(pl.col("score")), scale).alias("value"), pl.len().cast(pl.Int64).alias("n"))
        .with_columns(pl.lit("q_family").alias("measure"), pl.lit(None, pl.String).alias("group"))
    )


def _mass(scores: pl.LazyFrame) -> pl.LazyFrame:
    return (
        scores.with_columns(_MASS)
        .filter(pl.col("mass").is_not_null())
        .group_by(_CELL, maintain_order=True)
        .agg(mean(pl.col("mass")).alias("value"), pl.len().cast(pl.Int64).alias("n"))
        .with_columns(pl.lit("mass").alias("measure"), pl.lit(None, pl.String).alias("group"))
    )


_MASS = (pl.col("logprob_male").exp() + pl.col("logprob_female").exp()).alias("mass")


def _ranks(groups: pl.LazyFrame) -> pl.LazyFrame:
    return groups.select(
        *_CELL,
        pl.lit("rank").alias("measure"),
        "group",
        pl.col("log_q").rank("average").over(_CELL).alias("value"),
        pl.len().over(_CELL).cast(pl.Int64).alias("n"),
    )


def _correlations(q: pl.LazyFrame, scores: pl.LazyFrame) -> list[pl.LazyFrame]:
    """Pairs of templates of one model, pairs of like models at one template, and the means of both."""
    kinds = scores.group_by(_RUN).agg(
        pl.coalesce(pl.col("head").first(), pl.col("template").unique().sort().str.join(" ")).alias("kind")
    )
    q = q.join(kinds, on=_RUN, nulls_equal=True)
    templates = pairwise(q, "template", _RUN, "group", "value").with_columns(pl.lit("r_templates").alias("measure"))
    models = pairwise(q, "model", ("task", "language", "template", "kind"), "group", "value").with_columns(
        pl.lit("r_models").alias("measure")
    )
    pairs = [frame.drop("kind", strict=False) for frame in (templates, models)]
    summary = [
        frame.sort(*_CELL, "other")
        .group_by("task", "language", "measure", maintain_order=True)
        .agg(mean(pl.col("value")), pl.col("value").count().cast(pl.Int64).alias("n"))
        .with_columns(pl.lit("all").alias("model"), pl.lit("all").alias("template"))
        for frame in pairs
    ]
    return [*pairs, *summary]


# --- intervals: numpy ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One model's scores as arrays: a stratum a group, with columns for the templates' scores, then their masses."""

    templates: tuple[str, ...]
    groups: tuple[str, ...]
    polarity: tuple[str | None, ...]
    strata: tuple[Stratum, ...]
    samples: tuple[tuple[int, ...], ...]
    family: Stratum | None
    family_samples: tuple[int, ...]


def intervals(scores: pl.DataFrame, bootstrap: Bootstrap, scale: Scale) -> pl.DataFrame:
    """Columns model, task, language, template, measure, group, low, high for all measures that have an interval."""
    rows = []
    with_mass = scores.with_columns(_MASS)
    for key, frame in with_mass.partition_by(_RUN, as_dict=True, maintain_order=True).items():
        matrix = _matrix(frame)
        rows += [(*key, *row) for row in _model_intervals(matrix, bootstrap, scale)]
    schema = {name: TIDY[name] for name in (*_CELL, "measure", "group", "low", "high")}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("low", "high").fill_nan(None))


def _matrix(frame: pl.DataFrame) -> _Matrix:
    templates = sorted(frame["template"].unique(), key=_natural)
    wide = frame.pivot(on="template", index=["group", "sample", "polarity", "family"], values=["score", "mass"])
    wide = wide.sort("group", "sample")
    columns = [f"{value}_{template}" for value in ("score", "mass") for template in templates]
    numbers = with_counts(wide.select(pl.col(columns).cast(pl.Float64).fill_null(float("nan"))).to_numpy())
    runs = wide.group_by("group", maintain_order=True).agg(pl.len(), pl.col("polarity").first())
    ends = runs["len"].cum_sum()
    samples = wide["sample"].to_numpy()
    found = zip(runs["group"], runs["polarity"], ends - runs["len"], ends, strict=True)
    parts = sorted(
        ((group, polarity, slice(start, end)) for group, polarity, start, end in found), key=lambda part: _natural(part[0])
    )
    count = len(templates)
    family = wide.with_row_index("row").filter(pl.col("family"), pl.col("polarity") == "male").sort("sample")["row"].to_numpy()
    scores = [*range(count), *range(2 * count, 3 * count)]
    return _Matrix(
        templates=tuple(templates),
        groups=tuple(group for group, _, _ in parts),
        polarity=tuple(polarity for _, polarity, _ in parts),
        strata=tuple(Stratum(group, numbers[rows]) for group, _, rows in parts),
        samples=tuple(tuple(samples[rows].tolist()) for _, _, rows in parts),
        family=Stratum("family", numbers[np.ix_(family, scores)]) if len(family) else None,
        family_samples=tuple(samples[family].tolist()),
    )


def _model_intervals(
    matrix: _Matrix, bootstrap: Bootstrap, scale: Scale
) -> Iterator[tuple[str, str, str | None, float, float]]:
    """(template, measure, group, low, high) of one model."""
    labels, plain = _outputs(matrix)
    estimate = bootstrap.estimate(matrix.strata, _Statistic(matrix, scale))
    low, high = _bounds(estimate, len(labels), scale)
    for (template, measure, group), lower, upper in zip([*labels, *plain], low, high, strict=True):
        yield template, measure, group, lower, upper
    if matrix.family is not None:
        estimate = bootstrap.estimate([matrix.family], lambda sums: means(sums)[..., 0, :])
        low, high = _bounds(estimate, len(matrix.templates), scale)
        for template, lower, upper in zip(matrix.templates, low, high, strict=True):
            yield template, "q_family", None, lower, upper


def _outputs(matrix: _Matrix) -> tuple[list[tuple[str, str, str | None]], list[tuple[str, str, str | None]]]:
    """(template, measure, group) of `_Statistic`'s outputs: those that are natural logarithms, and those behind them."""
    logs = [
        *((t, "q", g) for g in matrix.groups for t in matrix.templates),
        *((t, m, None) for m in ("q_f", "q_m", "g_s") for t in matrix.templates),
    ]
    return logs, [("all", "g_s", None), *((t, "mass", None) for t in matrix.templates)]


def sampled(scores: pl.DataFrame, scale: Scale) -> list[Sampled]:
    """One model's scores of one language as sampling units: all rates but q_family, then q_family; none without a score."""
    matrix = _matrix(complete(scores).with_columns(_MASS))
    if not matrix.strata:
        return []
    logs, plain = _outputs(matrix)
    statistic = _Statistic(matrix, scale)

    def printed(sums: Array) -> Array:
        values = statistic(sums)
        return np.concatenate([array_on_scale(values[..., : len(logs)], scale), values[..., len(logs) :]], axis=-1)

    rates_of = [Label(*label, scale=None if label[1] == "mass" else scale) for label in (*logs, *plain)]
    ratio = np.array([label.scale is not None and scale != "log10" for label in rates_of])
    made = [Sampled(tuple(rates_of), tuple(map(units, matrix.strata, matrix.samples)), printed, ratio)]
    if matrix.family is not None:
        topic = tuple(Label(template, "q_family", scale=scale) for template in matrix.templates)
        family = units(matrix.family, matrix.family_samples)
        mine = np.full(len(topic), scale != "log10")
        made.append(Sampled(topic, (family,), lambda sums: array_on_scale(means(sums)[..., 0, :], scale), mine))
    return made


def _bounds(estimate: Estimate, logs: int, scale: Scale) -> tuple[list[float], list[float]]:
    """Interval bounds, the first `logs` of them brought from natural logarithms to the scale."""
    bounds = []
    for side in (estimate.low, estimate.high):
        bounds.append([*array_on_scale(side[:logs], scale).tolist(), *side[logs:].tolist()])
    return bounds[0], bounds[1]


class _Statistic:
    """From sums [..., groups, columns] to log q (groups × templates), log q_f, log q_m, log g_s, overall g_s, mass."""

    def __init__(self, matrix: _Matrix, scale: Scale) -> None:
        self._templates = len(matrix.templates)
        self._scale = scale
        totals = np.stack([stratum.values.sum(axis=0) for stratum in matrix.strata])
        present = totals[:, 2 * self._templates : 3 * self._templates] > 0
        self._members = {
            polarity: [
                [g for g, p in enumerate(matrix.polarity) if p == polarity and present[g, t]] for t in range(self._templates)
            ]
            for polarity in ("female", "male")
        }

    def __call__(self, sums: Array) -> Array:
        count = self._templates
        log_q = means(sums)[..., :count]
        log_f, log_m = self._mean_over(log_q, "female"), self._mean_over(log_q, "male")
        log_g = log_m - log_f
        scored = [t for t in range(count) if self._members["female"][t] and self._members["male"][t]]
        overall = (
            array_on_scale(log_g[..., scored], self._scale).mean(axis=-1, keepdims=True)
            if scored
            else np.full((*sums.shape[:-2], 1), np.nan)
        )
        pooled = sums.sum(axis=-2)
        mass = pooled[..., count : 2 * count] / pooled[..., 3 * count :]
        flat = log_q.reshape(*sums.shape[:-2], -1)
        return np.concatenate([flat, log_f, log_m, log_g, overall, mass], axis=-1)

    def _mean_over(self, log_q: Array, polarity: str) -> Array:
        """Mean over the groups of a polarity that the template has, […, templates]; NaN where it has none."""
        result = np.full((*log_q.shape[:-2], self._templates), np.nan)
        for template, members in enumerate(self._members[polarity]):
            if members:
                result[..., template] = log_q[..., members, template].mean(axis=-1)
        return result


# --- order -----------------------------------------------------------------------------------------------------------


def _natural(name: str) -> tuple[bool, int, str]:
    """Whole numbers by size before other names, `all` last."""
    return (not name.isdigit(), int(name) if name.isdigit() else int(name == "all"), name)


def in_order(rows: pl.DataFrame, models: Sequence[str]) -> pl.DataFrame:
    """Rows by model (in the order given, `all` last), task, language, template, measure, group and other of the pair."""

    def position(column: str, order: Sequence[str]) -> pl.Expr:
        return pl.col(column).replace_strict({v: i for i, v in enumerate(order)}, default=None, return_dtype=pl.Int64)

    templates = sorted(rows["template"].unique(), key=_natural)
    groups, others = (sorted(rows[column].drop_nulls().unique(), key=_natural) for column in ("group", "other"))
    return rows.sort(
        position("model", [*models, "all"]),
        "task",
        "language",
        position("template", templates),
        position("measure", MEASURES),
        position("group", groups),
        position("other", others),
        maintain_order=True,
    )
