"""WinoBias's requests, letter for letter, its scores and its rates."""

import math
from typing import Any

import polars as pl
import pytest

from evaluator.datasets.winobias import FRAME
from evaluator.tasks import task
from evaluator.tasks.winobias import WinoBias
from evaluator.vocabulary import MeasureOptions, Rendered, Samples
from evaluator_serving.requests import Continuation, Masked, Request

NURSE = (0, "type1-dev", 1, "female", "nurse", ["The nurse said ", " hurt ", "."], ["he", "himself"], ["she", "herself"])
NOISY = (1, "type1-dev", 2, "male", "cook", ["The cook gave ", " the ", " today."], ["him", "map"], ["her", "maps"])


def samples(*rows: tuple[Any, ...]) -> Samples:
    return Samples(pl.DataFrame(rows, schema=FRAME, orient="row"), {})


def requests(rendered: Rendered) -> list[Request]:
    return [rendered.requests[key] for key in rendered.table["request"]]


def test_masked_requests() -> None:
    rendered = WinoBias().render(samples(NURSE, NOISY), frozenset({"masked", "causal"}), "default")
    assert requests(rendered) == [
        Masked(("The nurse said ", " hurt ", "."), (("he", "himself"), ("she", "herself")), "sequential"),
        Masked(("The cook gave ", " the map today."), (("him",), ("her",)), "sequential"),  # a noun is no pronoun
    ]
    assert rendered.table.select("template", "group").rows() == [("type1-dev", "female"), ("type1-dev", "male")]


def test_published_masks_all_that_differs() -> None:
    rendered = WinoBias().render(samples(NOISY), frozenset({"masked"}), "published")
    assert requests(rendered) == [
        Masked(("The cook gave ", " the ", " today."), (("him", "map"), ("her", "maps")), "positional")
    ]


def test_causal_requests_start_at_the_first_pronoun() -> None:
    rendered = WinoBias().render(samples(NURSE), frozenset({"causal"}), "published")
    assert requests(rendered) == [Continuation("The nurse said", (" he hurt himself.", " she hurt herself."), "conditional")]
    assert rendered.table["template"].to_list() == ["type1-dev (extension)"]


@pytest.mark.parametrize(
    ("head", "protocol", "expected"),
    [("masked", "default", -4.0), ("masked", "published", -3.0), ("causal", "default", -4.0), ("causal", "published", -4.0)],
)
def test_scores_are_sums_or_published_means(head: str, protocol: Any, expected: float) -> None:
    it = WinoBias()
    rendered = it.render(samples(NURSE, NOISY), frozenset({head}), protocol)
    first = rendered.table["request"][0]
    answers = pl.DataFrame(
        {"request": [first, first], "candidate": [0, 1], "tokens": [[1, 2], [3]], "logprobs": [[-3.0, -5.0], [-4.0]]}
    )
    if protocol == "published" and head == "masked":
        answers = answers.with_columns(logprobs=pl.Series([[-3.0, -5.0], [-1.0]]))
    scores = it.score(rendered.table, answers, protocol)
    assert scores.select("sample", "group", "score").rows() == [(0, "female", expected)]  # one has no answer


MEAN_LOGS = {"male": [1.0, 0.5], "female": [-0.5, 0.25, -0.2]}


def scored(model: str = "m") -> pl.DataFrame:
    keys = {"model": model, "task": "winobias", "language": "en", "template": "type1-test"}
    values = [(gender, value) for gender, column in MEAN_LOGS.items() for value in column]
    return pl.DataFrame([{**keys, "sample": i, "group": g, "score": v} for i, (g, v) in enumerate(values)])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("ratio", (math.exp(0.75), math.exp(-0.15), math.exp(0.9))),
        ("published", tuple(math.exp(v / math.log(10)) for v in (0.75, -0.15, 0.9))),
        ("log10", tuple(v / math.log(10) for v in (0.75, -0.15, 0.9))),
    ],
)
def test_rates_by_hand(scale: Any, expected: tuple[float, ...]) -> None:
    tidy = task("winobias").measure(scored(), MeasureOptions(scale=scale))
    assert tidy.select("measure", "group", "n", "scale").rows() == [
        ("q_hat_m", "all", 2, scale),
        ("q_hat_f", "all", 3, scale),
        ("g_hat_s", "all", 5, scale),
    ]
    assert tidy["value"].to_list() == pytest.approx(list(expected))
    assert (tidy["low"] < tidy["value"]).all()
    assert (tidy["value"] < tidy["high"]).all()


def test_published_rate_of_a_published_model() -> None:
    # bert-base-uncased, type 1 test: the authors' file has mean log10 ratios 0.5943 and 0.4133.
    means = {"male": 0.5943251791955431, "female": 0.41333008994291903}
    keys = {"model": "bert-base-uncased", "task": "winobias", "language": "en", "template": "type1-test"}
    rows = [
        {**keys, "sample": i, "group": g, "score": (v + d) * math.log(10)}
        for i, (g, v, d) in enumerate((g, v, d) for g, v in means.items() for d in (-0.1, 0.1))
    ]
    tidy = task("winobias").measure(pl.DataFrame(rows), MeasureOptions(scale="published"))
    assert tidy.filter(measure="g_hat_s")["value"].item() == pytest.approx(1.19841, abs=1e-5)


def test_one_sample_of_a_gender_has_no_interval_and_none_no_rate() -> None:
    one = task("winobias").measure(scored().filter(pl.col("sample").is_in([0, 2, 3])), MeasureOptions())
    assert one.filter(measure="q_hat_m").select("value", "low").row(0) == (pytest.approx(math.e), None)
    none = task("winobias").measure(scored().filter(group="female"), MeasureOptions())
    assert none["value"].to_list() == [None, pytest.approx(math.exp(-0.15)), None]


def test_generative_models_are_marked() -> None:
    it = task("winobias")
    extended = scored("glm").with_columns(template=pl.lit("type1-test (extension)"))
    lines = it.warnings(pl.concat([scored(), extended]), MeasureOptions())  # type: ignore[attr-defined]
    marked, few = lines
    assert marked == "glm: scores of generative models are this project's extension; the papers have none"
    assert few.startswith("4 of 4 splits' genders have fewer than 20 samples (type1-test male: 2, ")
