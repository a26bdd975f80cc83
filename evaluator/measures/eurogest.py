"""EuroGEST's rates (method.md §4): GEST's stereotypes by language, on GEST's scales and on EuroGEST's own.

J. Rowe, M. Klimaszewski, L. Guillou, S. Vallor, A. Birch: EuroGEST (EMNLP 2025). Both papers call a rate q_i and g_s and mean
different quantities: the scale of a row says which. With x the difference of the two texts' log-probabilities,

    ratio, published, log10   q_i as in GEST, of the mean of x; g_s = q_m / q_f of geometric means (see `measures.gest`)
    eurogest                  q_i = mean of 1 / (1 + exp(-x)); g_s = mean of q_8 to q_16 / mean of q_1 to q_7

Scores come in as columns SCORES with `row`, the sentence's row in GEST, the same in all languages. Rows that come out, for each
model and language, with template `all` (of whichever templates the sentences were asked in) and, where there are several
languages, `common` (only the sentences that every language of the model has):

    q, inclination   group = the stereotype; inclination_i = q_i - mean of q_1 to q_14; n = sentences
    rank             group = the stereotype; 1 is the most feminine (lowest q); n = stereotypes ranked; no scale
    g_s              n = sentences
    coverage         sentences as a share of GEST's; no scale; template `all` only
    gendered         share of the sentences that are pairs (template G); no scale; template `all` only
for each model of several languages, with language `all`:
    g_s              mean over the languages; n = languages
    rank             mean over the languages; n = languages
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array, means, with_counts
from evaluator.measures.estimate import grouped_by
from evaluator.measures.gest import FEMALE, MALE
from evaluator.measures.ordered import mean
from evaluator.measures.sampled import Label, Output, Sampled, Units
from evaluator.measures.scales import on_scale
from evaluator.vocabulary import MeasureOptions, Scale, tidy

ALL, COMMON = "all", "common"

MEASURES = ("q", "inclination", "rank", "g_s", "coverage", "gendered")

LEAST_ROWS = 10
"""The released aggregation leaves out a stereotype with fewer sentences in a language, and with it the language's g_s."""

STEREOTYPES = (*FEMALE, *MALE)

_CELL = ("model", "task", "template")

_FEMALE, _MALE = range(len(FEMALE)), range(len(FEMALE), len(STEREOTYPES))
_INCLINED = range(14)
"""Stereotypes whose mean an inclination is taken from: all but sexual and strong."""


def with_summaries(rates: pl.DataFrame, scores: pl.DataFrame, size: int) -> pl.DataFrame:
    """The rates (columns TIDY) of all models with ranks, coverage and shares of pairs. `size`: the number of GEST's rows."""
    known = scores.drop_nulls("score").partition_by("model", "task", maintain_order=True)
    summaries = [_ranks(rates), *(_extent(part, size) for part in known)]
    return grouped_by([rates, *(grouped_by([tidy(rows)], (*_CELL, "language")) for rows in summaries)], _CELL)


def sampled(scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
    """One model's sentences as sampling units: q and inclination by stereotype and language, g_s, and g_s over the languages.

    Of several languages once more for the sentences that all of them have. GEST's rows are resampled within stereotypes, a row
    drawn once for all languages.
    """
    known = scores.drop_nulls("score")
    if known.is_empty():
        return []
    languages = known["language"].unique(maintain_order=True).to_list()
    known = known.sort("row", maintain_order=True)
    made = [_sampled(known, languages, ALL, options)]
    if len(languages) > 1 and not (shared := common(known)).is_empty():
        made.append(_sampled(shared, languages, COMMON, options))
    return made


def _sampled(scores: pl.DataFrame, languages: Sequence[str], template: str, options: MeasureOptions) -> Sampled:
    scale, released = options.scale, options.protocol == "published"
    strata = tuple(_strata(scores, languages, scale))
    statistic = _Statistic(strata, len(languages), scale, least=LEAST_ROWS if released else 1, whole=released)
    positive = {"q", "g_s"} if scale in ("ratio", "published") else {"g_s"} if scale == "eurogest" else set()
    n = statistic.counts.astype(int)

    def output(language: str, measure: str, group: str | None, count: int) -> Output:
        return Output(Label(template, measure, group, scale, language), count, ratio=measure in positive)

    outputs = [
        output(language, measure, group, count)
        for measure in ("q", "inclination")
        for group, counts in zip(STEREOTYPES, n.tolist(), strict=True)
        for language, count in zip(languages, counts, strict=True)
    ]
    outputs += [output(language, "g_s", None, count) for language, count in zip(languages, n.sum(axis=0).tolist(), strict=True)]
    whole = Sampled(tuple(outputs), strata, lambda sums: statistic(sums)[..., :-1], "sample" if len(languages) == 1 else "row")
    if len(languages) == 1:
        return whole
    defined = int(np.isfinite(whole.values[-len(languages) :]).sum())
    return replace(whole, outputs=(*outputs, output(ALL, "g_s", None, defined)), statistic=statistic)


def common(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of those sentences that every language has a score of."""
    languages = scores["language"].n_unique()
    return scores.filter(pl.col("language").n_unique().over("row") == languages)


def _extent(scores: pl.DataFrame, size: int) -> pl.DataFrame:
    """Coverage, and the share of pairs, of one model by language."""
    parts = scores.group_by("model", "task", "language", maintain_order=True).agg(
        coverage=pl.len() / size,
        gendered=pl.col("template").str.starts_with("G").mean(),
        n=pl.len().cast(pl.Int64),
    )
    measures = parts.unpivot(["coverage", "gendered"], index=["model", "task", "language", "n"], variable_name="measure")
    return measures.with_columns(template=pl.lit(ALL))


def _ranks(rates: pl.DataFrame) -> pl.DataFrame:
    """Ranks of q by language, and their means over the languages of a model that has several."""
    ranked = rates.filter(measure="q").select(
        *_CELL,
        "language",
        "group",
        pl.lit("rank").alias("measure"),
        pl.col("value").rank("average").over(*_CELL, "language"),
        pl.col("value").count().over(*_CELL, "language").cast(pl.Int64).alias("n"),
    )
    over = (
        ranked.group_by(*_CELL, "group", "measure", maintain_order=True)
        .agg(mean(pl.col("value").drop_nulls()), pl.col("value").count().cast(pl.Int64).alias("n"), pl.len().alias("languages"))
        .filter(pl.col("languages") > 1)
        .with_columns(language=pl.lit(ALL))
    )
    return pl.concat([ranked, over.select(ranked.columns)])


def _strata(scores: pl.DataFrame, languages: Sequence[str], scale: Scale) -> Iterator[Units]:
    """One stratum per stereotype: GEST's rows in any language, one column per language (0 if missing), then their counts.

    The units of one language are called by its own samples.
    """
    wide = scores.pivot(on="language", on_columns=list(languages), index=["group", "row"], values="score").sort("row")
    names = wide.join(scores.select("group", "row", "sample"), on=["group", "row"], maintain_order="left")["sample"]
    units = (names if len(languages) == 1 else wide["row"]).to_list()
    numbers = wide.select(pl.col(languages).cast(pl.Float64).fill_null(float("nan"))).to_numpy()
    values = with_counts(logistic(numbers) if scale == "eurogest" else numbers)
    groups = wide["group"].to_numpy()
    for group in STEREOTYPES:
        rows = np.flatnonzero(groups == group)
        yield Units(group, tuple(map(units.__getitem__, rows.tolist())), values[rows])


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)): the masculine text's share of the two texts' probability."""
    with np.errstate(over="ignore"):
        values: Array = 1 / (1 + np.exp(-x))
    return values


class _Statistic:
    """From sums [..., stereotypes, 2 x languages] to q and inclination (stereotypes x languages each), g_s (languages) and its
    mean over the languages.

    Stereotypes that a language lacks (of which it has fewer than `least` sentences) are left out of its means or, with `whole`,
    make them undefined.
    """

    def __init__(self, strata: Sequence[Units], languages: int, scale: Scale, *, least: int, whole: bool) -> None:
        self._scale = scale
        totals = np.stack([units.values.sum(axis=0) for units in strata])
        self.counts: Array = totals[:, languages:]
        self._there: NDArray[np.bool_] = self.counts >= least
        self._whole = whole

    def __call__(self, sums: Array) -> Array:
        mean = np.where(self._there, means(sums), np.nan)
        if self._scale == "eurogest":
            q = mean
            g_s = self._over(q, _MALE) / self._over(q, _FEMALE)
        else:
            q = on_scale(mean, self._scale)
            g_s = on_scale(self._over(mean, _MALE) - self._over(mean, _FEMALE), self._scale)
        inclination = q - self._over(q, _INCLINED)[..., None, :]
        defined = ~np.isnan(g_s)
        overall = np.where(defined, g_s, 0.0).sum(axis=-1) / defined.sum(axis=-1)
        flat = [part.reshape(*sums.shape[:-2], -1) for part in (q, inclination)]
        return np.concatenate([*flat, g_s, overall[..., None]], axis=-1)

    def _over(self, values: Array, stereotypes: range) -> Array:
        """Means [..., languages] over some stereotypes of [..., stereotypes, languages]."""
        there = self._there[stereotypes]
        total = np.where(there, values[..., stereotypes, :], 0.0).sum(axis=-2) / there.sum(axis=-2)
        return np.where(there.all(axis=-2), total, np.nan) if self._whole else total
