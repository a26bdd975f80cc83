"""Reports of a definition with poles of its own: its names everywhere, and none of GEST's."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.store.run import Run
from evaluator.tasks.gest_layout import rates_layout
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import DataSource
from tests.own_tasks import custom
from tests.reports import pages

GENDERED = re.compile(r"\b(fe)?male\b|feminin|masculin|\b(wo)?men\b|\b(wo)?man\b|\([fm]\)|about family", re.IGNORECASE)

NAMES = {"knits": "old", "rests": "old", "skates": "young", "games": "young", "sings": None}
GROUPS = "".join(
    f'{key} = {{ name = "who {key}"{f", polarity = {json.dumps(pole)}" if pole else ""} }}\n' for key, pole in NAMES.items()
)
DEFINITION = f"""
name = "age"
polarity = ["old", "young"]
topic = ["Sunday"]

[groups]
{GROUPS}
[[templates]]
id = "1"
kind = "continuation"
text = '"{{s}}", said the []'
words = ["grandparent", "teenager"]

[[templates]]
id = "2"
kind = "continuation"
text = '"{{s}}", the [] said'
words = ["grandparent", "teenager"]
""".replace("the [] said", "says the []")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two templates; one of the groups has no scores of one model."""
    folder = tmp_path_factory.mktemp("age")
    (folder / "my.toml").write_text(DEFINITION)
    sentences = [f"{name} {i} on a {'Sunday' if i % 2 else 'Monday'},{name}" for name in NAMES for i in range(4)]
    (folder / "my.csv").write_text("\n".join(["sentence,group", *sentences]))
    task = custom(folder / "my.csv", folder / "my.toml")
    samples = task.load(DataSource())
    made = Run.create_or_open(folder / "run", protocol="default", provenance={})
    table = task.render(samples, frozenset({"causal"}), "default").table.drop("request")
    for shift, model in enumerate(("one", "two")):
        scores = table.with_row_index("i").select(
            "language",
            "template",
            "sample",
            "group",
            (((table["sample"] * 7 + shift * 3) % 11 - 5) / 10).alias("score"),
            logprob_male=-1.5,
            logprob_female=-2.5,
            polarity="polarity",
            family="family",
            head="head",
        )
        made.add_imported(
            task.name,
            task_entry(task, samples),
            model,
            scores.filter((scores["group"] != "games") | (model == "one")),
            {"own": "aa"},
        )
    return folder / "run"


def reported(run: Path, *arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(cli, ["report", str(run), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("format_", ["table", "csv", "json", "markdown", "latex", "html"])
@pytest.mark.parametrize("scale", ["ratio", "log10"])
def test_every_format_names_the_definitions_poles_only(run: Path, format_: str, scale: str) -> None:
    out, err = reported(run, "--format", format_, "--scale", scale)
    said = (pages.text(out) if format_ == "html" else out) + err
    assert [match[0] for match in GENDERED.finditer(said)] == []
    assert "young" in said
    assert "old" in re.findall(r"\w+", said)
    warned = said.replace("\\", "").replace("\n", " ")  # Markdown and LaTeX escape, tables wrap
    assert "no scores of group games: q (young), q (old) and g_s use" in re.sub(" +", " ", warned)


def test_tables_and_plots_by_pole(run: Path) -> None:
    table, _ = reported(run)
    assert "q (young)" in table
    assert "q (old)" in table
    assert "young groups" in table
    assert "old groups" in table
    assert "g_s = q (old) / q (young), 1 is unbiased" in " ".join(table.split())
    assert "samples of old groups that contain a word of the topic (Sunday)" in " ".join(table.split())
    assert "age: young rank over 4 pairs of model and template" in table
    page = pages.text(reported(run, "--format", "html")[0])
    assert "Circles (y): young groups; squares (o): old groups." in page
    assert "young rank (1: lowest q)" in page
    assert "Ranks (1: most young)" in page
    assert "knits who knits (o)" in page


def test_tidy_rows_name_the_pole_beside_the_stable_key(run: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(reported(run, "--format", "csv")[0])))
    poles = {(row["measure"], row["group"]): row["pole"] for row in rows}
    assert (poles["q_f", ""], poles["q_m", ""], poles["q_family", ""], poles["g_s", ""]) == ("young", "old", "old", "")
    assert {group: poles["q", group] for group in NAMES} == {group: pole or "" for group, pole in NAMES.items()}
    assert {pole for (measure, _), pole in poles.items() if measure.startswith("r_")} == {""}


def test_poles_that_begin_alike_are_written_out() -> None:
    for poles, marks in ((("rich", "religious"), ["(rich)", "(religious)"]), (("old", "young"), ["(o)", "(y)"])):
        layout = rates_layout({}, {}, "ratio", poles)
        assert [layout.mark(pole) for pole in poles] == marks
