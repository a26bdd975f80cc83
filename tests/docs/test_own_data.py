"""docs/own-data.md: its files are valid, its commands run, and what it says of mistakes is so."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.reports.facts import ModelFacts, model_facts
from evaluator.tasks import chosen_tasks
from evaluator.vocabulary import DataSource
from evaluator_serving.chats import Chat
from evaluator_serving.errors import InputError
from tests.tiny_models import tiny_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-data.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files in the working folder."""
    for name, content in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text("utf8"), re.S | re.M):
        (tmp_path / name).write_text(content, "utf8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run(folder: Path) -> None:
    model = tiny_model("gpt2", folder / "model")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf8"), re.S | re.M)
    commands = [line.replace("MODEL", str(model)) for block in blocks for line in block.splitlines()]
    said = []
    for line in commands:
        program, *words = shlex.split(line)
        assert program == "evaluator"
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, (line, result.output, result.exception)
        said.append(result.stdout)
    assert "q (alt)" in said[1]
    assert "Mein Kleiderschrank ist jede Saison ein neuer." in said[2]
    assert said[3].count("modisch") == 6  # three sentences: their group, and no other name


def test_both_kinds_of_models_are_asked_in_words_of_the_page(folder: Path) -> None:
    (task,) = chosen_tasks(("gest",), samples=Path("saetze.csv"), templates=Path("alter.toml"))
    samples = task.load(DataSource())
    assert samples.frame.height == 12
    for head in ("masked", "causal"):
        assert task.render(samples, frozenset({head}), "default").table.height == 12


def test_pairs_of_the_page(folder: Path) -> None:
    (task,) = chosen_tasks(("pairs",), samples=Path("paare.csv"), templates=Path("paare.toml"))
    samples = task.load(DataSource())
    assert (task.name, samples.failures) == ("alter-paare", ())
    assert samples.frame.select("group", "language").rows() == [("vergesslich", "de"), ("technik", "de")]


def test_the_facts_of_models_of_the_page(folder: Path) -> None:
    known = model_facts({key: {} for key in ("owl-7b", "owl-7b-chat", "hawk@1000", "hawk@2000")}, Path("models.csv"))
    assert known["owl-7b-chat"] == ModelFacts(7.2e9, "owl", tuned=True, base="owl-7b", release="2026-04")
    assert known["hawk@2000"] == ModelFacts(160e6, "hawk", tuned=False, series="hawk's training", step=2000)


def test_the_question_of_the_page(folder: Path) -> None:
    (task,) = chosen_tasks(("gest-who",), wording=Path("frage.toml"), way="text", orders=2)
    (samples,) = chosen_tasks(("gest",), samples=Path("saetze.csv"), templates=Path("alter.toml"))
    rendered = task.render(samples.load(DataSource()), frozenset({"chat"}), "default")
    first = next(iter(rendered.requests.values()))
    assert isinstance(first, Chat)
    assert [turn.role for turn in first.turns] == ["system", "user"]
    assert 'Jemand sagt: "Nach jeder Treppe muss ich mich hinsetzen."' in first.turns[1].content


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    path = folder / "alter.toml"
    wrong = path.read_text("utf8").replace('kind = "masked"', 'kind = "mask"').replace('name = "modisch"', "name = 5")
    path.write_text(wrong, "utf8")
    with pytest.raises(InputError) as refused:
        chosen_tasks(("gest",), samples=Path("saetze.csv"), templates=path)
    assert "groups.modisch.name" in str(refused.value)
    assert "'mask' is not one of" in str(refused.value)
