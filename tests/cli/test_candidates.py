"""`evaluator scores --candidates` says all that rates are made of: each is computed again here from that output alone."""

import io
import math
import random
from statistics import mean
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

import evaluator
from evaluator.cli import cli
from evaluator.datasets.word_filling import QUADRUPLES
from evaluator.reports.results import Results
from evaluator.store.answers import answers_frame
from evaluator.tasks import task
from evaluator.tasks.word_filling import WordFilling
from evaluator.vocabulary import MeasureOptions, Samples
from evaluator_serving.answers import Answer
from evaluator_serving.requests import Request, SharedTokens
from tests.scoring.made_up import write_data

MODELS = {"masked": ("bert", "wordpiece-split"), "causal": ("gpt2", "gpt2-split")}
PAIRS = "sent_more,sent_less\nthe woman feels tired,the man feels tired\nthe boss is strong,the strong child is the boss\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("candidates")
    models = {name: str(tiny_model(family, folder / name, tokenizer=kind)) for name, (family, kind) in MODELS.items()}
    data = write_data(folder / "data")
    (folder / "pairs.csv").write_text(PAIRS)
    for tasks, more in ((("gest", "stereoset-en"), {}), (("pairs",), {"samples": folder / "pairs.csv"})):
        evaluator.run(tasks, models, out=folder / "run", data=data, engine="transformers", verify=False, **more)
    return evaluator.open(folder / "run")


def listed(run: Results, *arguments: str) -> pl.DataFrame:
    said = CliRunner().invoke(cli, ["scores", str(run.path), "--format", "parquet", *arguments])
    return pl.read_parquet(io.BytesIO(said.stdout_bytes))


def values(rows: pl.DataFrame) -> dict[tuple[Any, ...], dict[str, float]]:
    """(model, template, group, sample) → role → the sum of its candidates' values."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows.drop_nulls("value").iter_rows(named=True):
        roles = found.setdefault((row["model"], row["template"], row["group"], row["sample"]), {})
        roles[row["role"]] = roles.get(row["role"], 0.0) + row["value"]
    return found


def test_stereoset(run: Results) -> None:
    """SS and LMS of both tests; a generative model's candidates are read behind their contexts, which are the prefix."""
    rows = listed(run, "--candidates", "--task", "stereoset-en")
    assert set(rows["role"].drop_nulls()) == {"stereotype", "anti-stereotype", "unrelated"}
    reported = run.rates("stereoset-en", resamples=10).filter(group="all")
    checked = 0
    for model in MODELS:
        for template in ("intrasentence", "intersentence"):
            mine = [roles for place, roles in values(rows).items() if place[:2] == (model, template)]
            wins = [roles["stereotype"] > roles["anti-stereotype"] for roles in mine]
            related = [roles[name] > roles["unrelated"] for roles in mine for name in ("stereotype", "anti-stereotype")]
            for measure, won in (("SS", wins), ("LMS", related)) if mine else ():
                (told,) = reported.filter(model=model, template=template, measure=measure)["value"]
                assert told == pytest.approx(100 * mean(won))
                checked += 1
    assert checked >= 6
    given = rows.filter(pl.col("prefix").list.len() > 0)
    assert set(given["template"]) == {"intersentence"}
    contexts = rows.filter(template="intersentence:context").select("sample", context="tokens")
    for row in given.join(contexts, on="sample").iter_rows(named=True):
        assert row["prefix"] == row["context"]
    assert listed(run, "--task", "stereoset-en")["id"].to_list() == run.scores("stereoset-en")["example"].to_list()


def test_gest(run: Results) -> None:
    """q is a geometric mean of ratios."""
    rows = values(listed(run, "--candidates", "--task", "gest"))
    for row in run.rates("gest", resamples=10).filter(measure="q").iter_rows(named=True):
        mine = [
            r["male"] - r["female"] for place, r in rows.items() if place[:3] == (row["model"], row["template"], row["group"])
        ]
        if mine:
            assert row["value"] == pytest.approx(math.exp(mean(mine)))
    scores = listed(run, "--task", "gest")
    assert (scores["id"] == scores["sample"].cast(pl.String)).all()


def test_pairs(run: Results) -> None:
    (name,) = (each for each in run.tasks if each.startswith("pairs"))
    rows = values(listed(run, "--candidates", "--task", name))
    for row in run.rates(name, resamples=10).filter(measure="mean", group="all").iter_rows(named=True):
        mine = [r["more"] - r["less"] for place, r in rows.items() if place[:2] == (row["model"], row["template"])]
        assert row["value"] == pytest.approx(mean(mine))


def made_up(requests: dict[str, Request]) -> pl.DataFrame:
    """Answers of one to three tokens a candidate, drawn; both of two sentences that share tokens have as many."""
    draw = random.Random(0)
    answers = []
    for key, request in requests.items():
        count = 2 if isinstance(request, SharedTokens) else len(request.candidates)  # type: ignore[union-attr]
        size = draw.randint(1, 3)
        lengths = [size if isinstance(request, SharedTokens) else draw.randint(1, 3) for _ in range(count)]
        numbers = tuple(tuple(-draw.random() * 5 for _ in range(n)) for n in lengths)
        answers.append(Answer(key, tuple(tuple(range(n)) for n in lengths), numbers))
    return answers_frame(answers)


def winobias() -> Samples:
    rows = [
        {"sample": i, "split": "type1-dev", "gender": ("male", "female")[i % 2], "parts": [f"The boss {i} said ", " left."]}
        | {"male": ["he"], "female": ["she"], "id": f"type1-dev:{i}"}
        for i in range(6)
    ]
    return Samples(pl.DataFrame(rows), {})


def quadruples() -> Samples:
    rows = [
        (i, i, f"A girl {i} is <kind>.", f"A girl {i} is <rude>.", f"A boy {i} is <kind>.", f"A boy {i} is <rude>.")
        for i in range(6)
    ]
    return Samples(pl.DataFrame(rows, schema=QUADRUPLES, orient="row"), {})


def eurogest() -> Samples:
    texts = [(i, 100 + i, "cs", "P", "7", f"„Věta {i}“, řekl", f"„Věta {i}“, řekla") for i in range(6)]
    columns = ("sample", "row", "language", "template", "group", "masculine", "feminine")
    return Samples(pl.DataFrame(texts, schema=columns, orient="row"), {})


@pytest.mark.parametrize("protocol", ["default", "published", "published-2025"])
@pytest.mark.parametrize("head", ["masked", "causal"])
def test_other_tasks(protocol: Any, head: str) -> None:
    """Of answers that are drawn: scores are differences of values, and rates their means."""
    keyword = WordFilling("made", lambda data: quadruples(), "keyword")
    cases = [
        (task("winobias"), winobias(), "male", "female", "q_hat_m", "male"),
        (keyword, quadruples(), "stereotype", "anti-stereotype", None, "original"),
        (keyword, quadruples(), "more", "less", None, "original"),
        (task("eurogest-cs"), eurogest(), "masculine", "feminine", "q", "7"),
    ]
    for it, samples, first, second, measure, group in cases:
        if protocol not in it.protocols:
            continue
        made = it.render(samples, frozenset({head}), protocol)
        answers = made_up(dict(made.requests))
        rows = values(it.candidates(made.table, answers, protocol).with_columns(model=pl.lit("m"), task=pl.lit(it.name)))
        scores = it.score(made.table, answers, protocol).with_columns(model=pl.lit("m"), task=pl.lit(it.name))
        compared = {place: roles[first] - roles[second] for place, roles in rows.items() if first in roles}
        column = "cs" if first == "more" else "ss" if it is keyword else "score"
        told = {("m", row["template"], row["group"], row["sample"]): row[column] for row in scores.iter_rows(named=True)}
        assert len(compared) == 6 * (2 if it is keyword else 1)
        assert compared == pytest.approx(told)
        if measure:
            rate = (
                it.measure(scores, MeasureOptions(resamples=10))
                .filter(pl.col("measure") == measure, pl.col("group").is_in([group, "all"]))
                .row(0, named=True)
            )
            mine = [d for place, d in compared.items() if place[2] == group]
            assert rate["value"] == pytest.approx(math.exp(mean(mine)))
