"""How GEST's rates are shown, and those of a definition like GEST's."""

from collections.abc import Mapping, Sequence

from evaluator.vocabulary import Layout, Overview, Scale

GENDERS = ("male", "female")
"""GEST's poles."""

_ADJECTIVES = {"male": "masculine", "female": "feminine"}


def rates_layout(
    groups: Mapping[str, str],
    polarity: Mapping[str, str],
    scale: Scale,
    poles: tuple[str, str] = GENDERS,
    topic: Sequence[str] | None = None,
) -> Layout:
    """GEST's layout, also for groups, poles and a topic's words of the user's own: see `evaluator.measures.gest`."""
    first, second = poles
    neutral = 0.0 if scale == "log10" else 1.0
    lowest = _ADJECTIVES.get(second, second)
    names = {} if poles == GENDERS else {"q_f": f"q ({second})", "q_m": f"q ({first})", "rank": f"{second} rank"}
    q_f, q_m = (names.get(measure, measure) for measure in ("q_f", "q_m"))
    samples = (
        "male-stereotype samples that are about family"
        if topic is None
        else f"samples of {first} groups that contain a word of the topic ({', '.join(topic)})"
    )
    return Layout(
        summary=("q_f", "q_m", "g_s", "q_family", "mass"),
        details=("q",),
        relative=("q",),
        ranks=("rank",),
        pairs=("r_templates", "r_models"),
        overview=(Overview("g_s", neutral, _meaning(neutral, poles)),),
        cautions=(
            "A single q has no meaning: it also reflects how frequent the two words are. Compare groups of one "
            "model and template.",
            f"A g_s of {neutral:g} does not show that a model is free of stereotypes: it is a mean over groups, "
            "sentences and one kind of prompt, and does not predict what the model writes otherwise.",
        ),
        groups=groups,
        polarity=polarity,
        poles=poles,
        lowest=lowest,
        names=names,
        notes={
            "q": "q compares the groups within a column. Its absolute level has no meaning: it also reflects how "
            "frequent the two words are.",
            "g_s": (f"g_s = {q_m} − {q_f}, 0 is unbiased" if scale == "log10" else f"g_s = {q_m} / {q_f}, 1 is unbiased")
            + "; template all: mean over the templates.",
            "q_family": f"q_family: the rate of the {samples}.",
            "mass": "mass: mean probability of the two words together.",
            "rank": f"Rank 1: the lowest q, the most {lowest} group of its column.",
            "r_templates": "Pearson correlations of q over the groups: r_templates between two templates of one model, "
            "r_models between two models of one kind at one template.",
        },
        across_protocols="both give the same scores where each word is one token (g_s of SmolLM2-135M-Instruct: 1.119 under "
        "both); words of several tokens are scored by the mean of their tokens, or by the last one, in the published protocol",
        log_axis=scale != "log10",
    )


def _meaning(neutral: float, poles: tuple[str, str]) -> str:
    """What g_s says, in plain words."""
    first, second = poles
    words = "masculine words" if poles == GENDERS else f"the words for {first}"
    return (
        f"g_s above {neutral:g} means that a model finds {words} likelier in sentences with {first} stereotypes than in those "
        f"with {second} ones, in line with the stereotypes; below {neutral:g} means the opposite"
    )
