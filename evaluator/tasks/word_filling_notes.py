"""What the reader of a word-filling report is told: where each measure stands, what it means, what to beware of."""

from collections.abc import Iterator

import polars as pl

from evaluator.measures.statistics import UNITS, cells
from evaluator.measures.word_filling import statistics
from evaluator.vocabulary import Layout, MeasureOptions, Overview, Scatter

FEW = 50
"""Fewer samples than this left after filtering are warned of."""

F_MU = (
    "f_mu above 0 means that the stereotypical keyword gains more in sentences about the group than in the same sentences "
    "about the control group; at 0 the keyword's gain has nothing to do with the group"
)
CS_PLUS = (
    "cs_plus above 0.5 means that the rest of a sentence is likelier with the stereotyped group in it than with the other "
    "group, in more than half of the pairs"
)
AGAINST_CONTROL = (
    "a model near the line scores the control group, which should show no bias, as it scores the stereotyped group: such a "
    "score is not about the group."
)
CONTROLLED = (
    "Where the control group's score overlaps the original group's, the score can't be read as bias against the group, however "
    "far from 0 it is."
)
WITHOUT_CONTROL = "Without a control group, a score can have other causes than bias, such as word frequency."


def layout(form: str, options: MeasureOptions) -> Layout:
    """The report's layout for quadruples with a keyword (`keyword`), without one (`sentences`) and for `pairs`."""
    units = f"Means are in {UNITS[options.scale]} units; 0 is no preference."
    cs = (
        "cs: log-probability of the tokens that two sentences share, given the first sentence's group minus given "
        "the other one's; cs_plus: share of samples with cs > 0."
    )
    if options.protocol == "published":
        cs += (
            " Tokens are matched as in the default protocol: the released matcher pairs unlike tokens where words "
            "are swapped (at most 4 pairs of a data set) and masks wrong pieces of SentencePiece tokenizers, so cs "
            "differs from its numbers there."
        )
    if form == "pairs":
        return Layout(
            summary=("cs_mu", "cs_plus"),
            details=("cs_plus", "cs_mu"),
            overview=(Overview("cs_plus", 0.5, CS_PLUS),),
            cautions=(WITHOUT_CONTROL,),
            notes={"cs_mu": units, "cs_plus": cs + " cs_plus is the metric of CrowS-Pairs, 0.5 is unbiased."},
        )
    asked = statistics(form == "keyword")
    measures = tuple(dict.fromkeys([s.measure for s in asked] + ["rho_ss_frequency", "quadruples_kept"]))
    notes = {
        "ss_mu": "ss: log-probability of the stereotypical keyword minus that of the other; original: in sentences about the "
        "group, control: in the same sentences about another group.",
        "cs_mu": cs,
        "csk_mu": "csk: as cs, of the keyword.",
        "f_mu": "f: ss of the original group minus ss of the control group, the part of ss that is about the group.",
        "rho_ss": "rho_…: Pearson correlation, between the groups or between two scores.",
        "agreement_cs_csk": "agreement_…: share of the samples for which two scores have the same sign.",
        "fpr": "fpr, fnr: how often the control group exceeds a positive score of the original group, or undercuts a "
        "negative one.",
        "quadruples_kept": f"quadruples_kept: left by the tokenizer filter k0 − k1 = k2 − k3. {units}",
    }
    overview = (Overview("f_mu", 0.0, F_MU),) if form == "keyword" else ()
    scatters = tuple(
        Scatter(measure, measure, "original", "control", identity=True, note=f"{measure}: {AGAINST_CONTROL}")
        for measure in ("ss_mu", "cs_mu")
        if measure in measures
    )
    groups = ("original", "control", "all")
    return Layout(
        summary=measures, summary_groups=groups, overview=overview, scatters=scatters, cautions=(CONTROLLED,), notes=notes
    )


def warnings(scores: pl.DataFrame, tidy: pl.DataFrame) -> list[str]:
    """What must be known before these numbers are trusted, a line each, naming the model.

    Control group overlapping the original group, fewer than FEW samples left, keywords mostly of several tokens,
    quadruples dropped by the tokenizer filter, generative models (not in the papers).
    """
    found: list[str] = []
    for _, part in cells(scores):
        name = part["model"][0]
        rows = tidy.filter((pl.col("model") == part["model"][0]) & (pl.col("template") == part["template"][0]))
        if part["template"][0] != "masked":
            found.append(f"{name}: scores of generative models are this project's extension; the papers have none")
        found += [f"{name}: {text}" for text in (*_overlaps(rows), *_few(rows), *_filtered(rows), *_long(part))]
    return found


def _overlaps(rows: pl.DataFrame) -> Iterator[str]:
    for score in ("ss", "cs"):
        both = rows.filter((pl.col("measure") == f"{score}_mu") & pl.col("low").is_not_null())
        by_group = {row["group"]: row for row in both.iter_rows(named=True)}
        if {"original", "control"} <= by_group.keys():
            original, control = by_group["original"], by_group["control"]
            if control["high"] >= original["low"] and control["low"] <= original["high"]:
                yield (
                    f"{score} of the control group, {_interval(control)}, overlaps the original group's, "
                    f"{_interval(original)}: it can't be read as bias against the group"
                )


def _interval(row: dict[str, float]) -> str:
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def _few(rows: pl.DataFrame) -> Iterator[str]:
    # the control group has the original's samples; bias types are warned of like every task's groups
    means = rows.filter(
        pl.col("measure").is_in(["ss_mu", "cs_mu"]), pl.col("group").is_in(["original", "all"]), pl.col("n") < FEW
    )
    if means.height:
        listed = ", ".join(f"{n} for {measure} {group}" for measure, group, n in means.select("measure", "group", "n").rows())
        yield f"fewer than {FEW} samples remain: {listed}"


def _filtered(rows: pl.DataFrame) -> Iterator[str]:
    for row in rows.filter((pl.col("measure") == "quadruples_kept") & (pl.col("value") < pl.col("n"))).iter_rows(named=True):
        dropped = row["n"] - int(row["value"])
        yield f"{dropped} of {row['n']} quadruples dropped: the keywords' token counts don't satisfy k0 - k1 = k2 - k3"


def _long(scores: pl.DataFrame) -> Iterator[str]:
    counts = pl.concat([scores["tokens_stereotype"], scores["tokens_anti"]]).drop_nulls()
    several = int((counts > 1).sum())
    if several * 2 > len(counts):
        yield f"{several} of {len(counts)} keywords have several tokens: L(s) mostly scores word pieces"
