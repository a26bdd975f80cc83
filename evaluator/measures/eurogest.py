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

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator.measures.bootstrap import Array, Bootstrap, Stratum, means, with_counts
from evaluator.measures.gest import FEMALE, MALE
from evaluator.measures.intervals import BOOTSTRAPS, named
from evaluator.measures.sampled import Label, Sampled, units
from evaluator.measures.scales import array_on_scale
from evaluator.vocabulary import TIDY, MeasureOptions, Scale, tidy

ALL, COMMON = "all", "common"

MEASURES = ("q", "inclination", "rank", "g_s", "coverage", "gendered")

LEAST_ROWS = 10
"""The released aggregation leaves out a stereotype with fewer sentences in a language, and with it the language's g_s."""

STEREOTYPES = (*FEMALE, *MALE)

_FEMALE, _MALE = range(len(FEMALE)), range(len(FEMALE), len(STEREOTYPES))
_INCLINED = range(14)
"""Stereotypes whose mean an inclination is taken from: all but sexual and strong."""

Scored = tuple[str, str, str | None, float, float | None, float | None, int, str | None]
"""language, measure, group, value, low, high, n, scale"""


def eurogest_measures(scores: pl.DataFrame, options: MeasureOptions, size: int) -> pl.DataFrame:
    """Tidy rows (columns TIDY); see the module's text for what they are. `size`: GEST's rows, of which coverage is a share.

    Intervals resample GEST's rows within stereotypes, a row drawn once for all languages of a model.
    """
    frames = []
    bootstrap = Bootstrap.of(options)
    for (model, task), part in (
        scores.drop_nulls("score").partition_by("model", "task", as_dict=True, maintain_order=True).items()
    ):
        languages = part["language"].unique(maintain_order=True).to_list()
        parts = {ALL: part}
        if len(languages) > 1 and not (shared := common(part)).is_empty():
            parts[COMMON] = shared
        for template, chosen in parts.items():
            rows = [*_rates(chosen, languages, bootstrap, options)]
            if template == ALL:
                rows += _extent(chosen, languages, size)
            schema = ("language", "measure", "group", "value", "low", "high", "n", "scale")
            frame = pl.DataFrame(rows, schema={name: TIDY[name] for name in schema}, orient="row")
            keys = (pl.lit(text).alias(name) for name, text in (("model", model), ("task", task), ("template", template)))
            frames.append(frame.with_columns(keys))
    if not frames:
        return pl.DataFrame(schema=TIDY)
    return tidy(pl.concat(frames).with_columns(named(BOOTSTRAPS[options.interval])))


def sampled(scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
    """One model's sentences of one language as sampling units: q and inclination by stereotype, and g_s."""
    known = scores.drop_nulls("score").sort("row")
    scale, released = options.scale, options.protocol == "published"
    strata = _strata(known, known["language"].unique().to_list(), scale)
    statistic = _Statistic(strata, 1, scale, least=LEAST_ROWS if released else 1, whole=released)
    labels = [Label(ALL, measure, group, scale) for measure in ("q", "inclination") for group in STEREOTYPES]
    labels.append(Label(ALL, "g_s", scale=scale))
    names = [known.filter(group=group)["sample"].to_list() for group in STEREOTYPES]
    positive = {"q", "g_s"} if scale in ("ratio", "published") else {"g_s"} if scale == "eurogest" else set()
    ratio = np.array([label.measure in positive for label in labels])
    return [Sampled(tuple(labels), tuple(map(units, strata, names)), lambda sums: statistic(sums)[..., :-1], ratio)]


def common(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of those sentences that every language has a score of."""
    languages = scores["language"].n_unique()
    return scores.filter(pl.col("language").n_unique().over("row") == languages)


def _extent(scores: pl.DataFrame, languages: Sequence[str], size: int) -> Iterator[Scored]:
    for language in languages:
        mine = scores.filter(language=language)
        yield language, "coverage", None, mine.height / size, None, None, mine.height, None
        gendered = mine["template"].str.starts_with("G").mean()
        yield language, "gendered", None, gendered, None, None, mine.height, None  # type: ignore[misc]


def _rates(scores: pl.DataFrame, languages: Sequence[str], bootstrap: Bootstrap, options: MeasureOptions) -> Iterator[Scored]:
    """q, inclination, rank and g_s by language, and what is said of all of them together."""
    scale = options.scale
    strata = _strata(scores, languages, scale)
    released = options.protocol == "published"
    statistic = _Statistic(strata, len(languages), scale, least=LEAST_ROWS if released else 1, whole=released)
    found = bootstrap.estimate(strata, statistic)
    n = statistic.counts.astype(int)
    triples = iter(zip(*(map(_number, side) for side in (found.value, found.low, found.high)), strict=True))
    for measure in ("q", "inclination"):
        for g, group in enumerate(STEREOTYPES):
            for at, language in enumerate(languages):
                value, low, high = next(triples)
                yield language, measure, group, value, low, high, n[g, at], scale
    for at, language in enumerate(languages):
        value, low, high = next(triples)
        yield language, "g_s", None, value, low, high, n[:, at].sum(), scale
    value, low, high = next(triples)
    if len(languages) > 1:
        defined = int(np.isfinite(found.value[-1 - len(languages) : -1]).sum())
        yield ALL, "g_s", None, value, low, high, defined, scale
    yield from _ranks(found.value[: len(STEREOTYPES) * len(languages)].reshape(len(STEREOTYPES), -1), languages)


def _ranks(q: Array, languages: Sequence[str]) -> Iterator[Scored]:
    ranks = np.full(q.shape, np.nan)
    for at, language in enumerate(languages):
        mine = pl.Series(q[:, at]).fill_nan(None).rank("average")
        ranked = len(mine) - mine.null_count()
        ranks[:, at] = mine.cast(pl.Float64).fill_null(float("nan")).to_numpy()
        for group, rank in zip(STEREOTYPES, mine, strict=True):
            yield language, "rank", group, rank, None, None, ranked, None
    if len(languages) > 1:
        for group, of_group in zip(STEREOTYPES, ranks, strict=True):
            there = of_group[~np.isnan(of_group)]
            yield ALL, "rank", group, _number(there.mean()) if len(there) else None, None, None, len(there), None  # type: ignore[misc]


def _strata(scores: pl.DataFrame, languages: Sequence[str], scale: Scale) -> tuple[Stratum, ...]:
    """A stratum a stereotype: GEST's rows that any language has, a column a language (0 where it hasn't), then their counts."""
    wide = scores.pivot(on="language", on_columns=list(languages), index=["group", "row"], values="score").sort("row")
    strata = []
    for group in STEREOTYPES:
        numbers = wide.filter(group=group).select(pl.col(languages).cast(pl.Float64).fill_null(float("nan"))).to_numpy()
        strata.append(Stratum(group, with_counts(logistic(numbers) if scale == "eurogest" else numbers)))
    return tuple(strata)


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

    def __init__(self, strata: Sequence[Stratum], languages: int, scale: Scale, *, least: int, whole: bool) -> None:
        self._scale = scale
        totals = np.stack([stratum.values.sum(axis=0) for stratum in strata])
        self.counts: Array = totals[:, languages:]
        self._there: NDArray[np.bool_] = self.counts >= least
        self._whole = whole

    def __call__(self, sums: Array) -> Array:
        mean = np.where(self._there, means(sums), np.nan)
        if self._scale == "eurogest":
            q = mean
            g_s = self._over(q, _MALE) / self._over(q, _FEMALE)
        else:
            q = array_on_scale(mean, self._scale)
            g_s = array_on_scale(self._over(mean, _MALE) - self._over(mean, _FEMALE), self._scale)
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


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
