"""Word filling's requests, letter for letter, and the arithmetic of its scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.datasets.crows import PAIRS
from evaluator.datasets.word_filling import QUADRUPLES
from evaluator.tasks import task
from evaluator.tasks.parameters import parse_settings
from evaluator.tasks.word_filling import CAUSAL, MASKED, WordFilling, shared_stretches
from evaluator.vocabulary import DataSource, MeasureOptions, Rendered, Samples
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.requests import Continuation, Masked, Request, SharedTokens, request_id
from tests.float64_loop import Loop, engine_answers
from tests.tiny_models import tiny_model

ONE = ("The <kind> girl sang.", "The <rude> girl sang.", "The <kind> boy sang.", "The <rude> boy sang.")

NAMES = [
    "stereoset-genderswap",
    "stereoset-genderswap-filtered",
    "stereoset-race-control",
    "stereoset-profession-control",
    "slovak-gender",
    "crows-negation",
    "crows-antistereotype",
    "crows-pairs",
    "crows-revised",
]


def quadruples(*rows: Sequence[str]) -> Samples:
    return Samples(pl.DataFrame([(i, i, *row) for i, row in enumerate(rows)], schema=QUADRUPLES, orient="row"), {})


def pairs(*rows: tuple[str, str, str]) -> Samples:
    data = [(i, kind, "stereo", more, less) for i, (kind, more, less) in enumerate(rows)]
    return Samples(pl.DataFrame(data, schema=PAIRS, orient="row"), {})


def made(form: str, samples: Samples) -> WordFilling:
    return WordFilling("made", lambda data: samples, form)  # type: ignore[arg-type]


def asked(rendered: Rendered) -> list[tuple[str, str, Request]]:
    columns = rendered.table.select("group", "role", "request").iter_rows()
    return [(group, role, rendered.requests[key]) for group, role, key in columns]


def answers(values: Mapping[Any, Sequence[Sequence[float]]]) -> pl.DataFrame:
    """Answers (by request or its id) with these log-probabilities, one list per candidate; token ids are made up."""
    rows = [
        (request if isinstance(request, str) else request_id(request), i, list(range(len(logprobs))), list(logprobs))
        for request, candidates in values.items()
        for i, logprobs in enumerate(candidates)
    ]
    schema = {"request": pl.String, "candidate": pl.Int32, "tokens": pl.List(pl.Int32), "logprobs": pl.List(pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def score(it: WordFilling, heads: str, values: Mapping[Any, Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    rendered = it.render(it.load(DataSource()), frozenset({heads}), "default")
    return it.score(rendered.table, answers(values), "default").to_dicts()


def keyword(before: str, word: str, after: str) -> Masked:
    return Masked((before, after), ((word,),), "joint")


MASKED_VALUES: dict[Request, list[list[float]]] = {
    keyword("The ", "kind", " girl sang."): [[-1.0]],
    keyword("The ", "rude", " girl sang."): [[-2.0, -4.0]],
    keyword("The ", "kind", " boy sang."): [[-1.5]],
    keyword("The ", "rude", " boy sang."): [[-2.5, -2.5]],
    SharedTokens("The kind girl sang.", "The kind boy sang."): [[-1.0, -2.0, -3.0], [-1.5, -2.5, -2.5]],
    SharedTokens("The rude girl sang.", "The rude boy sang."): [[-1.0], [-0.25]],
}


def test_masked_requests() -> None:
    rendered = made("keyword", quadruples(ONE)).render(quadruples(ONE), frozenset({"masked", "causal"}), "published")
    assert asked(rendered) == [
        ("original", "stereotype", keyword("The ", "kind", " girl sang.")),
        ("original", "anti", keyword("The ", "rude", " girl sang.")),
        ("control", "stereotype", keyword("The ", "kind", " boy sang.")),
        ("control", "anti", keyword("The ", "rude", " boy sang.")),
        ("original", "cs", SharedTokens("The kind girl sang.", "The kind boy sang.")),
        ("control", "cs", SharedTokens("The rude girl sang.", "The rude boy sang.")),
    ]
    assert set(rendered.table["template"]) == {MASKED}


def test_masked_scores_by_hand() -> None:
    original, control = score(made("keyword", quadruples(ONE)), "masked", MASKED_VALUES)
    # L = -1, -3, -1.5, -2.5 (means over the keyword's tokens)
    assert original["ss"] == original["score"] == pytest.approx(2.0)
    assert control["ss"] == control["score"] == pytest.approx(1.0)
    assert original["f"] == control["f"] == pytest.approx(1.0)
    assert original["csk"] == pytest.approx(0.5)
    assert control["csk"] == pytest.approx(-0.5)
    assert original["cs"] == pytest.approx(-6.0 + 6.5)
    assert control["cs"] == pytest.approx(-0.75)
    assert (original["tokens_stereotype"], original["tokens_anti"], original["kept"]) == (1, 2, True)
    assert (original["stereotype"], original["anti"]) == ("kind", "rude")


def test_tokenizer_filter() -> None:
    values = MASKED_VALUES | {keyword("The ", "rude", " boy sang."): [[-2.5]]}
    assert [row["kept"] for row in score(made("keyword", quadruples(ONE)), "masked", values)] == [False, False]
    longer = MASKED_VALUES | {
        keyword("The ", "kind", " boy sang."): [[-1.0, -1.0]],
        keyword("The ", "rude", " boy sang."): [[-2.5] * 3],
    }
    assert [row["kept"] for row in score(made("keyword", quadruples(ONE)), "masked", longer)] == [True, True]


def test_missing_and_empty_answers_leave_what_can_be_had() -> None:
    gone = SharedTokens("The kind girl sang.", "The kind boy sang.")
    without = {request: value for request, value in MASKED_VALUES.items() if request != gone}
    original, control = score(made("keyword", quadruples(ONE)), "masked", without)
    assert original["cs"] is None
    assert (original["ss"], control["cs"]) == (pytest.approx(2.0), pytest.approx(-0.75))
    original, _ = score(made("keyword", quadruples(ONE)), "masked", MASKED_VALUES | {gone: [[], []]})
    assert original["cs"] is None  # no token shared: not a score of zero
    assert score(made("keyword", quadruples(ONE)), "masked", {}) == []


def test_causal_requests_and_scores_by_hand() -> None:
    end = (" girl sang.", " boy sang.")
    values: dict[Request, list[list[float]]] = {
        Continuation("The", (" kind", " kind" + end[0])): [[-1.0], [-1.0, -2.0, -1.0]],
        Continuation("The", (" rude", " rude" + end[0])): [[-2.0, -1.0], [-2.0, -1.0, -1.0, -1.0]],
        Continuation("The", (" kind", " kind" + end[1])): [[-1.0], [-1.0, -1.0, -1.0]],
        Continuation("The", (" rude", " rude" + end[1])): [[-2.0, -1.0], [-2.0, -1.0, -2.0, -1.0]],
        Continuation("The kind girl", (" sang.",)): [[-0.5, -0.5]],
        Continuation("The kind boy", (" sang.",)): [[-1.0, -0.75]],
        Continuation("The rude girl", (" sang.",)): [[-2.0, -0.5]],
        Continuation("The rude boy", (" sang.",)): [[-1.0, -0.5]],
    }
    it = made("keyword", quadruples(ONE))
    rendered = it.render(it.load(DataSource()), frozenset({"causal"}), "default")
    assert set(rendered.requests.values()) == set(values)
    original, control = score(it, "causal", values)
    # L = -4, -5, -3, -6 (sums over the keyword and what follows)
    assert (original["ss"], control["ss"], original["f"]) == (1.0, 3.0, -2.0)
    assert (original["csk"], control["csk"]) == (-1.0, 1.0)
    assert (original["cs"], control["cs"]) == (0.75, -1.0)
    assert (original["tokens_anti"], original["kept"], original["template"]) == (2, True, CAUSAL)


def test_shared_stretches() -> None:
    first, second = "She hurt herself, so she left her job.", "He hurt himself, so he left his job."
    stretches = [(a.context, b.context, a.candidates) for a, b in shared_stretches(first, second)]
    assert stretches == [
        ("She", "He", (" hurt",)),
        ("She hurt herself", "He hurt himself", (", so",)),
        ("She hurt herself, so she", "He hurt himself, so he", (" left",)),
        ("She hurt herself, so she left her", "He hurt himself, so he left his", (" job.",)),
    ]
    shifted = [(a.context, b.context, a.candidates) for a, b in shared_stretches("She is very kind.", "He is kind.")]
    assert shifted == [("She", "He", (" is",)), ("She is very", "He is", (" kind.",))]
    # What comes before the first difference has the same probability in both.
    assert list(shared_stretches("We saw him", "We saw her")) == []


def test_sentence_quadruples_have_cs_only() -> None:
    sentences = ("He runs.", "He sits.", "She runs.", "She sits.")
    it = made("sentences", quadruples(sentences))
    values: dict[Request, list[list[float]]] = {
        SharedTokens("He runs.", "She runs."): [[-1.0], [-3.0]],
        SharedTokens("He sits.", "She sits."): [[-2.0], [-1.0]],
    }
    original, control = score(it, "masked", values)
    assert (original["cs"], original["score"], control["score"]) == (2.0, 2.0, -1.0)
    assert (original["ss"], original["csk"], original["f"], original["kept"]) == (None, None, None, True)


def test_pairs_are_grouped_by_bias_type() -> None:
    it = made("pairs", pairs(("age", "Old men run.", "Young men run."), ("gender", "He ran.", "She ran.")))
    values: dict[Request, list[list[float]]] = {
        SharedTokens("Old men run.", "Young men run."): [[-1.0, -1.0], [-1.5, -2.0]],
        SharedTokens("He ran.", "She ran."): [[-1.0], [-0.5]],
    }
    rows = score(it, "masked", values)
    assert [(row["group"], row["score"]) for row in rows] == [("age", 1.5), ("gender", -0.5)]


def test_a_request_that_two_samples_share_is_asked_once() -> None:
    rendered = made("keyword", quadruples(ONE, ONE)).render(quadruples(ONE, ONE), frozenset({"masked"}), "default")
    assert (rendered.table.height, len(rendered.requests)) == (12, 6)


@pytest.mark.parametrize(("tokenizer", "equal"), [("wordpiece-lower", True), ("wordpiece", False)])
def test_groups_that_differ_by_case_alone(tokenizer: str, equal: bool, tmp_path: Path) -> None:
    """An uncased model reads one sentence: cs is exactly 0, as the released code has it. A cased one reads two."""
    model = tiny_model("bert", tmp_path / "model", tokenizer=tokenizer)
    texts = ("She said the <man> is tired.", "She said the <woman> is tired.")
    samples = quadruples((*texts, *(text.replace("She", "she") for text in texts)))
    it, loop = made("keyword", samples), Loop(model, "AutoModelForMaskedLM")
    requests = it.render(samples, frozenset({"masked"}), "default").requests.values()
    both = [loop.answer(request) for request in requests if isinstance(request, SharedTokens)]
    found = score(it, "masked", {a.request: a.logprobs for a in engine_answers(resolve(str(model)), list(requests))})
    assert [row["cs"] for row in found] == pytest.approx([sum(one) - sum(other) for one, other in both], abs=1e-4)
    assert [row["cs"] == 0 for row in found] == [equal, equal]
    assert all(row["ss"] for row in found)


@pytest.mark.parametrize("name", NAMES)
def test_registered_tasks_say_where_their_data_is_missing(name: str, tmp_path: Any) -> None:
    it = task(name)
    assert it.name == name
    assert it.heads == {"masked", "causal"}
    with pytest.raises(InputError, match="evaluator data fetch"):
        it.load(DataSource(tmp_path))


def test_requested_bias_types() -> None:
    rows = [("m", "made", "en", MASKED, i, kind, 1.0, 1.0, True) for i, kind in enumerate(["age", "gender", "gender"])]
    columns = ["model", "task", "language", "template", "sample", "group", "score", "cs", "kept"]
    scores = pl.DataFrame(rows, schema=columns, orient="row")
    it = made("pairs", pairs())
    chosen = it.measure(
        scores, MeasureOptions(settings=parse_settings({it.name: type(it.parameters)}, {"bias_types": "Gender"}))
    )
    assert dict(chosen.filter(measure="cs_plus").select("group", "n").iter_rows()) == {"gender": 2, "all": 2}
    with pytest.raises(InputError, match="no bias type 'height'"):
        parse_settings({it.name: type(it.parameters)}, {"bias_types": "height"})
