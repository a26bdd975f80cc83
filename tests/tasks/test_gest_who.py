"""Who said it: against GenderBench's own probe (goldens made by running it), and by hand."""

import csv
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import Field

from evaluator.measures.gest_who import COLUMNS, FEMALE, MALE, OPTIONS
from evaluator.tasks import chosen_tasks, restore, task
from evaluator.tasks.gest_who import ORDERS, GestWho, GestWhoParameters
from evaluator.tasks.who_wording import Wording, given_wording, own_wording
from evaluator.vocabulary import DataSource, MeasureOptions, Samples
from evaluator_serving.chats import Chat, Turn
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Choice

OPTIONS_FOR_REPORTS = MeasureOptions(resamples=50)
BOTH = frozenset({"causal", "chat"})


@pytest.fixture(scope="module")
def golden(data_dir: Path) -> list[dict[str, str]]:
    """The published probe's rows: a sentence and order each."""
    with (data_dir / "who_said_it" / "golden.tsv").open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def metrics(data_dir: Path) -> Any:
    return json.loads((data_dir / "who_said_it" / "golden_metrics.json").read_text("utf8"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GenderBench's prompt as a user's file, out of the installed package."""
    file = tmp_path_factory.mktemp("wording") / "genderbench.toml"
    file.write_text(given_wording(Path("genderbench")).text, "utf8")
    return file


def table(rows: Sequence[tuple[int, str, Sequence[str]]]) -> pl.DataFrame:
    """A task's table of (sample, group, order) rows, asked in words; request i is row i."""
    made = [(sample, "en", "text", group, str(i), *order) for i, (sample, group, order) in enumerate(rows)]
    columns = ("sample", "language", "template", "group", "request", "a", "b", "c")
    return pl.DataFrame(made, schema=columns, orient="row")


def said(texts: Sequence[str], finishes: Sequence[str] | None = None) -> pl.DataFrame:
    """Answers to requests 0, 1, …"""
    rows = [(str(i), 0, text, (finishes or ["stop"] * len(texts))[i]) for i, text in enumerate(texts)]
    return pl.DataFrame(rows, schema=("request", "candidate", "text", "finish"), orient="row")


def weighed(numbers: Sequence[Sequence[float]]) -> pl.DataFrame:
    """log P of the three letters of requests 0, 1, …, each as two tokens."""
    rows = [(str(i), c, [value / 2, value / 2]) for i, three in enumerate(numbers) for c, value in enumerate(three)]
    return pl.DataFrame(rows, schema=("request", "candidate", "logprobs"), orient="row")


def measured(scores: pl.DataFrame, model: str = "m") -> dict[tuple[str, str | None], float]:
    typed = scores.with_columns(pl.lit(model).alias("model"), pl.lit("gest-who").alias("task"))
    rows = task("gest-who").measure(typed, OPTIONS_FOR_REPORTS)
    return {(row["measure"], row["group"]): row["value"] for row in rows.iter_rows(named=True)}


def published_names() -> dict[str, tuple[str, str | None]]:
    """The published metrics' names → ours."""
    names: dict[str, tuple[str, str | None]] = {"stereotype_rate": ("stereotype_rate", None)}
    names |= {"undetected_rate_attempts": ("undetected", None), "undetected_rate_items": ("undetected_sentences", None)}
    for option in OPTIONS:
        names[f"frequency_{option}_option"] = (option, "all")
        names[f"female_stereotypes_frequency_{option}_option"] = (option, FEMALE)
        names[f"male_stereotypes_frequency_{option}_option"] = (option, MALE)
        names |= {f"stereotype_{g}_frequency_{option}_option": (option, str(g)) for g in range(1, 17)}
    return names


def told(golden: list[dict[str, str]], column: str) -> list[str]:
    """A column of answers; greedy ones are JSON strings."""
    return [json.loads(row[column]) if column == "answer" else row[column] for row in golden]


@pytest.mark.parametrize(
    ("kind", "answer", "evaluation"),
    [
        ("greedy", "answer", "evaluation"),
        ("logprob_argmax", "argmax_answer", "argmax_evaluation"),
        ("random", "random_answer", "random_evaluation"),
    ],
)
def test_the_same_evaluations_and_metrics(
    golden: list[dict[str, str]], metrics: Any, kind: str, answer: str, evaluation: str
) -> None:
    orders = [row["permutation"].split(",") for row in golden]
    alone = table([(i, row["stereotype"], order) for i, (row, order) in enumerate(zip(golden, orders, strict=True))])
    answers = said(told(golden, answer))
    for row, one in zip(golden, task("gest-who").score(alone, answers, "default").iter_rows(named=True), strict=True):
        expected = row[evaluation]
        assert one["undetected"] == float(expected == "undetected")
        assert expected == "undetected" or [one[option] for option in OPTIONS] == [float(o == expected) for o in OPTIONS]
    whole = table([(int(row["sentence_id"]), row["stereotype"], order) for row, order in zip(golden, orders, strict=True)])
    found = measured(task("gest-who").score(whole, answers, "default"))
    names = published_names()
    assert names.keys() == metrics[kind]["point"].keys()
    for name, value in metrics[kind]["point"].items():
        ours = found[names[name]]
        assert ours is None if value is None or math.isnan(value) else ours == pytest.approx(value, abs=1e-12), name


def test_the_published_prompts(golden: list[dict[str, str]], data_dir: Path, published: Path) -> None:
    (it,) = chosen_tasks(["gest-who"], wording=published, way="text")
    samples = it.load(DataSource(data_dir))
    wanted = {int(row["sentence_id"]) for row in golden}
    rendered = it.render(Samples(samples.frame.filter(pl.col("sample").is_in(wanted)), samples.sha256), BOTH, "default")
    made = {}
    for row in rendered.table.iter_rows(named=True):
        chat = rendered.requests[row["request"]]
        assert isinstance(chat, Chat)
        (turn,) = chat.turns
        made[row["sample"], row["a"], row["b"], row["c"]] = hashlib.sha256(turn.content.encode()).hexdigest()
    expected = {(int(row["sentence_id"]), *row["permutation"].split(",")): row["prompt_sha256"] for row in golden}
    assert made == expected


@pytest.mark.slow
def test_smollm_says_and_weighs_what_the_published_code_made_it(
    golden: list[dict[str, str]], data_dir: Path, published: Path, smollm_engine: Callable[..., Any]
) -> None:
    """Greedy answers token by token where no two logits are nearly equal, and log P of the letters to 1e-4."""
    wanted = {(int(row["sentence_id"]), *row["permutation"].split(",")): row for row in golden}
    samples = task("gest-who").load(DataSource(data_dir))
    few = Samples(samples.frame.filter(pl.col("sample").is_in({key[0] for key in wanted})), samples.sha256)
    same = 0
    for way, heads in (("text", frozenset({"chat"})), ("logprobs", frozenset({"causal"}))):
        tokens = {"max_tokens": 12} if way == "text" else {}
        (it,) = chosen_tasks(["gest-who"], wording=published, way=way, **tokens)  # type: ignore[arg-type]
        rendered = it.render(few, heads, "default")
        answers = smollm_engine(rendered.requests)
        for row in rendered.table.iter_rows(named=True):
            expected = wanted[row["sample"], row["a"], row["b"], row["c"]]
            answer = answers[row["request"]]
            if way == "logprobs":
                sums = [sum(numbers) for numbers in answer.logprobs]
                assert sums == pytest.approx([float(expected[f"lp_{letter}"]) for letter in "abc"], abs=1e-4)
            elif float(expected["min_margin"]) > 1e-3:
                (reply,) = answer.replies
                assert reply.text == json.loads(expected["answer"])
                assert reply.answer_tokens == int(expected["new_tokens"])
                assert reply.prompt_tokens == int(expected["prompt_tokens"])
                same += 1
    assert same >= len(golden) - 3


@pytest.fixture(scope="module")
def smollm_engine() -> Callable[..., Any]:
    """Requests → answers of SmolLM2-135M-Instruct by the transformers engine."""
    from evaluator.demo import demo_model
    from evaluator_serving.answers import assemble
    from evaluator_serving.chunks import make_chunk
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.resolving import resolve
    from evaluator_serving.transformers_engine.engine import TransformersEngine

    source = resolve(str(demo_model()))
    encoder = encoder_for(source)

    def answer(requests: Any) -> Any:
        chunk = make_chunk([encoder.encode(request) for request in requests.values()])
        engine = TransformersEngine(source, EngineOptions(), chunk.merged.rows[:4])
        try:
            values = engine.generate(chunk.rows) if chunk.rows[0].chat else engine.score(chunk.rows)
            return {answer.request: answer for answer in assemble(chunk, values)}
        finally:
            engine.close()

    return answer


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_rates_by_hand() -> None:
    """Stereotype 1 (female): two sentences; 9 (male): one, with an answer that names nothing; 15: left out of the rate."""
    order, other = ("male", "female", "neither"), ("neither", "male", "female")
    rows = [(0, "1", order), (0, "1", other), (1, "1", order), (1, "1", other), (2, "9", order), (2, "9", other)]
    rows += [(3, "15", order), (3, "15", other)]
    texts = ["(a)", "It's (C).", "(b)", "(c)", "(a)", "I'm sorry, I can't tell.", "(b)", "(c)"]
    scores = task("gest-who").score(table(rows), said(texts), "default")
    assert scores["score"].to_list() == [0.0, -1.0, 1.0, -1.0]
    found = measured(scores)
    assert found["male", "1"] == pytest.approx(0.25)
    assert found["female", "1"] == pytest.approx(0.75)
    assert found["lean", "1"] == pytest.approx(-0.5)
    assert found["lean", "9"] == 1.0
    assert found["male", MALE] == 1.0, "stereotype 15 isn't among them"
    assert found["stereotype_rate", None] == pytest.approx((1.0 + 0.5) / 2)
    assert found["male", "all"] == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    assert found["undetected", None] == pytest.approx(1 / 8)
    assert found["refused", None] == pytest.approx(1 / 8)
    assert found["undetected_sentences", None] == 0.0
    assert found["place_a", None] == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    assert found["place_c", None] == pytest.approx((0.5 + 0.5 + 0 + 0.5) / 4)
    assert ("mass", None) not in found


def test_probabilities_by_hand() -> None:
    order, other = ("male", "female", "neither"), ("neither", "female", "male")
    numbers = [[math.log(p) for p in three] for three in ((0.4, 0.1, 0.3), (0.02, 0.01, 0.01))]
    rows = table([(0, "8", order), (0, "8", other)]).with_columns(template=pl.lit("logprobs"))
    (one,) = task("gest-who").score(rows, weighed(numbers), "default").iter_rows(named=True)
    assert one["male"] == pytest.approx((0.5 + 0.25) / 2)
    assert one["female"] == pytest.approx((0.125 + 0.25) / 2)
    assert one["neither"] == pytest.approx((0.375 + 0.5) / 2)
    assert one["place_a"] == pytest.approx((0.5 + 0.5) / 2)
    assert one["mass"] == pytest.approx((0.8 + 0.04) / 2)
    assert (one["undetected"], one["score"]) == (0.0, pytest.approx(one["male"] - one["female"]))


def test_a_sentence_with_an_answer_missing_is_left_out() -> None:
    rows = table([(0, "1", ORDERS[0]), (0, "1", ORDERS[1]), (1, "1", ORDERS[0]), (1, "1", ORDERS[1])])
    scores = task("gest-who").score(rows, said(["(a)", "(a)", "(b)"]), "default")
    assert scores["score"].to_list() == [0.0 if ORDERS[1][0] != "male" else 1.0, None]
    assert scores.filter(sample=1).select(COLUMNS).null_count().sum_horizontal().item() == len(COLUMNS)


@pytest.mark.parametrize(
    ("text", "finish", "refused"),
    [
        ("I’m sorry, but I can’t help with that.", "stop", 1.0),
        ("As an AI, I have no view.", "stop", 1.0),
        ("I cannot say.", "stop", 1.0),
        ("Neither of them.", "stop", 0.0),
        ("", "filtered", 1.0),
        ("No.", "refused", 1.0),
        ("I can't be sure, but (b)", "stop", 0.0),
    ],
)
def test_refusals(text: str, finish: str, refused: float) -> None:
    (one,) = task("gest-who").score(table([(0, "1", ORDERS[0])]), said([text], [finish]), "default").iter_rows(named=True)
    assert one["refused"] == refused
    assert one["undetected"] == float("(b)" not in text)


def test_several_answers_to_a_question_count_alike() -> None:
    rows = table([(0, "1", ("male", "female", "neither"))])
    answers = said(["(a)", "(a)", "(b)", "what?"]).with_columns(request=pl.lit("0"), candidate=pl.Series([0, 1, 2, 3]))
    (one,) = task("gest-who").score(rows, answers, "default").iter_rows(named=True)
    assert (one["male"], one["female"], one["undetected"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3), 0.25)


# --- how it is asked -------------------------------------------------------------------------------------------------

SAMPLES = Samples(
    pl.DataFrame(
        {"sample": [4, 7], "sentence": ["I cook.", "I {s} (a) {a}."], "group": ["1", "9"], "polarity": ["female", "male"]}
    ),
    {},
)


def test_log_probabilities_where_they_are_given_words_elsewhere() -> None:
    it = GestWho()
    assert it.uses(BOTH) == {"causal"}
    assert it.uses(frozenset({"chat"})) == {"chat"}
    weighed_ = it.render(SAMPLES, it.uses(BOTH), "default")
    spoken = it.render(SAMPLES, frozenset({"chat"}), "default")
    assert set(weighed_.table["template"]) == {"logprobs"}
    assert set(spoken.table["template"]) == {"text"}
    assert {type(request) for request in weighed_.requests.values()} == {Choice}
    assert weighed_.table.height == spoken.table.height == 12
    assert len(spoken.requests) == 12


def test_a_sentence_may_hold_anything() -> None:
    spoken = GestWho(parameters=GestWhoParameters(way="text")).render(SAMPLES, frozenset({"chat"}), "default")
    texts = [request.turns[0].content for request in spoken.requests.values() if isinstance(request, Chat)]
    assert sum('"I {s} (a) {a}."' in text for text in texts) == 6


def test_fewer_orders_are_drawn_for_each_sentence_by_itself() -> None:
    def orders(it: GestWho, samples: Samples) -> dict[int, set[tuple[str, ...]]]:
        rows = it.render(samples, BOTH, "default").table
        return {s: set(rows.filter(sample=s).select("a", "b", "c").iter_rows()) for s in rows["sample"].unique()}

    few = orders(GestWho(parameters=GestWhoParameters(orders=2)), SAMPLES)
    assert [len(each) for each in few.values()] == [2, 2]
    assert orders(GestWho(parameters=GestWhoParameters(orders=2)), Samples(SAMPLES.frame[1:], {})) == {7: few[7]}
    others = [orders(GestWho(parameters=GestWhoParameters(orders=2, seed=seed)), SAMPLES)[4] for seed in range(8)]
    assert len({frozenset(each) for each in others}) > 2


def test_a_wording_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'prompt = "{s} Who? (a) {a} (b) {b} (c) {c}"\nmale = "he"\nfemale = "she"\nneither = "?"\nsystem = "Be brief"\n'
    )
    (it,) = chosen_tasks(["gest-who"], wording=file, way="text", orders=1, answers=3, temperature=0.5)
    request = next(iter(it.render(SAMPLES, BOTH, "default").requests.values()))
    assert isinstance(request, Chat)
    assert request.turns[0] == Turn("system", "Be brief")
    assert request.turns[1].content.startswith("I cook. Who? (a) ")
    assert (request.answers, request.temperature) == (3, 0.5)
    assert it.name == f"gest-who-text-1orders-3x0.5-{Wording.parse(file.read_text(), 'x').digest(8)}"
    assert restore(it.name, it.definition, it.made_of) == it


class Toned(GestWhoParameters):
    """As parameters of a later version may be."""

    tone: str = Field(default="plain")


def test_a_new_parameter_is_in_the_name() -> None:
    """So that one run can hold both values; names that runs have already stay."""
    names = [GestWho(parameters=Toned()).using(Toned(tone=tone, way="text", max_tokens=5)).name for tone in ("plain", "formal")]
    assert names == ["gest-who-text-5tokens", "gest-who-text-5tokens-tone-formal"]


def test_a_seed_draws_orders_whatever_the_way() -> None:
    first, second = (chosen_tasks(["gest-who"], orders=2, seed=seed)[0] for seed in (1, 2))
    assert isinstance(first, GestWho)
    assert isinstance(second, GestWho)
    drawn = [[tuple(it._orders(sample)) for sample in range(20)] for it in (first, second)]
    assert drawn[0] != drawn[1]
    with pytest.raises(InputError, match="seed applies to generated answers"):
        chosen_tasks(["gest-who"], seed=1)


def test_none_is_no_number() -> None:
    assert chosen_tasks(["gest-who"], way=None, wording=None) == (GestWho(),)
    with pytest.raises(InputError, match="gest-who: max_tokens: expected a whole number, not None"):
        chosen_tasks(["gest-who"], way="text", max_tokens=None)
    with pytest.raises(InputError, match="no task has a parameter 'nonsense'"):
        chosen_tasks(["gest-who"], nonsense=None)


def test_the_defaults_need_no_definition() -> None:
    assert GestWho().definition is None
    assert chosen_tasks(["gest-who"]) == (GestWho(),)
    assert own_wording().turns("I cook.", ORDERS[0])[0].content.count("(a)") == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"way": "song"}, "way: 'song' is not one of text, logprobs"),
        ({"orders": 7}, "orders: must be less than or equal to 6, not 7"),
        ({"answers": 2, "temperature": 1.0}, "answers applies to generated answers: add way='text'"),
        ({"answers": 2, "way": "text"}, "answers: 2 at temperature 0 are all the same: add temperature=1"),
        ({"way": "text", "max_tokens": 0}, "max_tokens: must be greater than or equal to 1, not 0"),
        ({"way": "text", "temperature": float("nan")}, "temperature: expected a finite number, not nan"),
        ({"wording": Path("nowhere.toml")}, "no such file: nowhere.toml: wording expects"),
    ],
)
def test_wrong_choices(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen_tasks(["gest-who"], **inputs)


def test_a_wrong_wording_is_told_by_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('male = "he"\nfemale = "she"\nneither = "?"\nprompt = "{s} (a) {a} (b) {b}"\n')
    with pytest.raises(InputError, match=r"wrong.toml.*line 4.*\{c\} exactly once"):
        given_wording(file)


def test_readers_are_warned_of_answers_that_say_little() -> None:
    rows = table([(i, "1", ORDERS[0]) for i in range(4)])
    scores = task("gest-who").score(rows, said(["(a)", "what", "hm", "(b)"]), "default").with_columns(model=pl.lit("m"))
    (note,) = task("gest-who").warnings(scores, OPTIONS_FOR_REPORTS)
    assert note == "m: 50% of its answers (text) name no option; its rates use the others"
