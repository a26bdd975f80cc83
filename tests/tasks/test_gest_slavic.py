"""Gender pairs scored by masked models: requests, the token-count filter, yields, a whole run on a random XLM-R shape."""

import csv
import math
from pathlib import Path
from statistics import mean

import polars as pl
import pytest

from evaluator.reports.report import build_report
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks.gest_slavic import gest_slavic
from evaluator.vocabulary import DataSource, MeasureOptions
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Masked
from tests.tiny_models import tiny_model

HEADER = ("translator", "language", "original", "stereotype", "male", "female")
PAIRS = [
    ("a", "sk", "I was sad.", "1", "Bol som smutne doma.", "Bola som smutne doma."),
    ("a", "sk", "I worked.", "8", "Vtedy som pracoval.", "Vtedy som pracovala."),
    ("b", "sk", "I worked.", "8", "Vtedy som pracoval.", "Vtedy som pracovala."),
    ("a", "cs", "I led my kids.", "13", "Vedl jsem.", "Vedla jsem."),
    ("a", "cs", "I sang.", "2", "Zpíval jsem rád.", "Zpívala jsem ráda."),
]


@pytest.fixture
def variants(tmp_path: Path) -> Path:
    path = tmp_path / "gender_variants.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *PAIRS])
    return path


def test_pairs_become_requests(variants: Path) -> None:
    task = gest_slavic(variants)
    samples = task.load(DataSource())
    assert samples.dropped == {"equal pairs": 1}
    assert [number for number, _ in samples.failures] == ["4"], "two words differ"
    rendered = task.render(samples, frozenset({"masked"}), "default")
    assert list(rendered.requests.values()) == [
        Masked(("", " som smutne doma."), (("Bol",), ("Bola",))),
        Masked(("Vtedy som ", "."), (("pracoval",), ("pracovala",))),
        Masked(("", " jsem."), (("Vedl",), ("Vedla",))),
    ]
    assert rendered.table.select("sample", "language", "group", "polarity", "family").rows() == [
        (0, "sk", "1", "female", False),
        (1, "sk", "8", "male", False),
        (3, "cs", "13", "male", True),
    ]


def test_published_pairs_are_whole_sentences_chosen_by_the_first_difference(tmp_path: Path) -> None:
    path = tmp_path / "gender_variants.csv"
    rows = [
        *PAIRS,
        ("b", "cs", "I was sad.", "1", "Bol som smutne doma.", "Bola som smutne doma."),  # the same pair in another language
        ("a", "sk", "I won.", "8", "Vyhral som.", "Zvíťazila som."),  # another word
        ("a", "sk", "I slept.", "3", "Rád spím.", "rada spím."),  # another capital
        ("a", "sk", "I sat.", "3", "Sedel som.", "Sedela som!"),  # another final mark as well
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    task = gest_slavic(path)
    default, published = task.load(DataSource()), task.load(DataSource(protocol="published"))
    assert default.frame["sample"].to_list() == [0, 1, 3, 5, 7, 8]
    assert default.dropped == {"equal pairs": 1, "another first letter": 1}
    assert published.frame["sample"].to_list() == [0, 1, 3, 4, 8]
    assert published.dropped == {"equal pairs": 2, "another first letter": 2}
    assert published.failures == ()
    requests = list(task.render(published, frozenset({"masked"}), "published").requests.values())
    assert requests[0] == Masked(("", ""), (("Bol som smutne doma.",), ("Bola som smutne doma.",)), "one_token")


def test_scores_and_pairs_that_are_not_kept(variants: Path) -> None:
    task = gest_slavic(variants)
    table = task.render(task.load(DataSource()), frozenset({"masked"}), "default").table
    first, second, third = table["request"]
    answers = pl.DataFrame(
        {
            "request": [first, first, second, second, third, third],
            "candidate": [0, 1, 0, 1, 0, 1],
            "tokens": [[1], [2], [3], [4, 5], [], []],
            "logprobs": [[-1.0], [-3.0], [-2.0], [-1.0, -0.5], [], []],
        }
    )
    assert task.score(table, answers, "default")["score"].to_list() == [2.0, -0.5, None]


def test_rates_by_language_from_the_stored_answers(tmp_path: Path) -> None:
    """Every number of the report from run.json, the table of samples and the answers, by the method's formulas."""
    pairs = [
        ("a", ("sk", "cs")[i % 2], f"I {'led my kids' if i % 5 == 0 else 'was late'} {i}.", i // 2 % 16 + 1) for i in range(80)
    ]
    texts = [tuple(f"Ja som {'doma ' * (i % 3)}{'abcdef'[i % 6]}o{end} {i}." for end in ("l", "la")) for i in range(80)]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *((*pair, *text) for pair, text in zip(pairs, texts, strict=True))])
    model = tiny_model("xlm-roberta", tmp_path / "xlmr")
    run = execute(
        RunSpec((ModelSpec(str(model), "transformers"),), (gest_slavic(tmp_path / "pairs.csv"),), tmp_path / "run")
    ).run
    table = pl.read_parquet(run.path / "samples" / "gest-slavic.parquet")
    stored = pl.concat([pl.read_parquet(part) for part in (run.path / "logprobs").rglob("part-*.parquet")])
    logprobs = {(request, which): sum(numbers) for request, which, _, numbers in stored.iter_rows()}
    told = build_report(run, MeasureOptions(resamples=20, scale="log10")).rows
    for language in ("sk", "cs"):
        x: dict[int, float] = {}
        mass = []
        for sample, request in table.filter(language=language).select("sample", "request").iter_rows():
            male, female = logprobs[request, 0], logprobs[request, 1]
            x[sample] = (male - female) / math.log(10)
            mass.append(math.exp(male) + math.exp(female))
        assert len(x) == 40
        by = {g: mean(x[i] for i in x if pairs[i][3] == g) for g in range(1, 17)}
        q_f, q_m = mean(by[g] for g in range(1, 8)), mean(by[g] for g in range(8, 17))
        family = mean(x[i] for i in x if pairs[i][3] > 7 and "kids" in pairs[i][2])
        order = sorted(by, key=by.__getitem__)
        expected: dict[tuple[str, str | None], float] = {("q", str(g)): q for g, q in by.items()}
        expected |= {("rank", str(g)): float(order.index(g) + 1) for g in by}
        expected |= {("q_f", None): q_f, ("q_m", None): q_m, ("g_s", None): q_m - q_f, ("q_family", None): family}
        expected |= {("mass", None): mean(mass), ("yield", None): 40.0}
        mine = told.filter(pl.col("language") == language, pl.col("template") != "all")
        found = {(row["measure"], row["group"]): row["value"] for row in mine.iter_rows(named=True)}
        assert found == pytest.approx(expected, abs=1e-12)


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gender_variants\.csv"):
        gest_slavic().load(DataSource(tmp_path))
    path = tmp_path / "own.csv"
    path.write_text(",".join(HEADER) + "\na,sk,I sing.,17,Spieval som.,Spievala som.\n")
    with pytest.raises(InputError, match="17"):
        gest_slavic(path).load(DataSource())
