"""Statistics of the word-filling scores ss, cs, csk and f over original and control groups, and of CrowS-Pairs' cs.

M. Pikuliak, I. Beňová, V. Bachratý: In-Depth Look at Word Filling Societal Bias Measures (EACL 2023), method.md §3.
"""

import polars as pl

from evaluator.measures.estimate import grouped_by
from evaluator.measures.sampled import Sampled
from evaluator.measures.statistics import CELL, Correlation, Mean, Share, Statistic, cells, sampling_units
from evaluator.vocabulary import MeasureOptions, tidy


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


def wide(scores: pl.DataFrame) -> pl.DataFrame:
    """One row per model and sample: `f, kept, original` and the other scores with a column for each of the two groups."""
    keys = [*CELL, "sample"]
    columns = ("ss", "cs", "csk", "tokens_stereotype", "tokens_anti", "stereotype", "anti")
    return scores.group_by(keys, maintain_order=True).agg(
        pl.col("original", "kept", "f").first(),
        *(
            pl.col(c).filter(pl.col("group") == group).first().alias(f"{c}_{group}")
            for c in columns
            for group in ("original", "control")
        ),
    )


def with_kept(rates: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The rates (columns TIDY) of all models with `quadruples_kept`: how many the tokenizer filter leaves (of n)."""
    kept = (
        pl.DataFrame(
            {"measure": "quadruples_kept", "group": "all", "value": float(table["kept"].sum()), "n": table.height}
        ).with_columns(keys)
        for keys, table in ((keys, wide(part)) for keys, part in cells(scores))
    )
    return grouped_by([rates, *map(tidy, kept)], CELL)


def pairs(scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
    """One model's scores of CrowS-Pairs as sampling units: `cs_mu` and `cs_plus` by bias type (the group) and over all.

    `cs_plus` is the published metric: the share of pairs whose more stereotypical sentence is likelier.
    """
    made = []
    for _, part in cells(scores):
        template, task = part["template"][0], part["task"][0]
        for group in [*part["group"].unique(maintain_order=True), "all"]:
            samples = part if group == "all" else part.filter(pl.col("group") == group)
            made.append(sampling_units(samples, _positive("cs", group, "cs"), f"{task}/{group}", template, options))
    return made


def quadruples(
    scores: pl.DataFrame, options: MeasureOptions, *, by_original: bool, word_counts: pl.DataFrame | None = None
) -> list[Sampled]:
    """One model's scores of quadruples as sampling units: every statistic of method.md §3 over those that the filter keeps.

    Mean scores are natural logarithms by default, log10 with the scales `published` and `log10`. With `by_original`, units are
    original pairs, of which several samples may be made, except in `published` intervals. With `word_counts` (columns `word`,
    `count`: corpus frequencies), `rho_ss_frequency` is added.
    """
    made = []
    for _, part in cells(scores):
        samples = wide(part)
        keyword = samples["ss_original"].is_not_null().any()
        asked = statistics(keyword)
        if keyword and word_counts is not None:
            samples = samples.with_columns(_log_frequencies(samples, word_counts))
            asked += [Correlation("rho_ss_frequency", g, f"ss_{g}", f"frequency_{g}") for g in ("original", "control")]
        cluster = "original" if by_original else None
        made.append(sampling_units(samples.filter("kept"), asked, part["task"][0], part["template"][0], options, cluster))
    return made


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
