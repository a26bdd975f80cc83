"""Users' own definitions: what they may say, how they are refused, and that a run can restore them."""

from pathlib import Path

import pytest

from evaluator.tasks import chosen_tasks, restore
from evaluator.tasks.definition import Group, parse_definition
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked
from tests.own_tasks import custom

AGE = """
name = "age"
language = "de"
polarity = ["young", "old"]
topic = ["laufe", "Rente"]

[columns]
sentence = "satz"
group = "thema"

[groups]
sport = { name = "sporty", polarity = "young" }
"kluger rat" = { name = "wise", polarity = "old" }
wetter = { name = "weather, nobody's" }

[[templates]]
id = "first"
kind = "masked"
text = 'Der [] Mensch sagt: „{s}“'
words = ["junge", "alte"]

[[templates]]
id = "second"
kind = "continuation"
text = '„{s}“, sagt der[]'
words = [" Junge", " Alte"]
"""

SATZ = 'satz,thema\n"Ich laufe, jeden Tag.",sport\nIch bekomme Rente.,kluger rat\nMeine Rente regnet.,wetter\n'


def files(folder: Path, samples: str = SATZ, templates: str = AGE) -> tuple[Path, Path]:
    (folder / "my.csv").write_text(samples, encoding="utf-8")
    (folder / "my.toml").write_text(templates, encoding="utf-8")
    return folder / "my.csv", folder / "my.toml"


def test_own_sentences_groups_words_and_poles(tmp_path: Path) -> None:
    it = custom(*files(tmp_path))
    assert it.name == "age"
    assert it.heads == {"masked", "causal"}
    loaded = it.load(DataSource())
    # inside the program the pole of the first words is called male, that of the second female
    assert loaded.frame.select("group", "polarity", "family").rows() == [
        ("sport", "male", True),
        ("kluger rat", "female", False),
        ("wetter", None, False),
    ]
    masked = it.render(loaded, frozenset({"masked"}), "default")
    assert masked.table.select("sample", "language", "template", "group").rows() == [
        (0, "de", "first", "sport"),
        (1, "de", "first", "kluger rat"),
        (2, "de", "first", "wetter"),
    ]
    assert masked.requests[masked.table["request"][0]] == Masked(
        ("Der ", " Mensch sagt: „Ich laufe, jeden Tag.“"), (("junge",), ("alte",)), "sequential"
    )
    causal = it.render(loaded, frozenset({"causal"}), "default")
    assert causal.requests[causal.table["request"][0]] == Continuation(
        "„Ich laufe, jeden Tag.“, sagt der", (" Junge", " Alte"), "conditional"
    )


def test_a_masked_slot_may_follow_the_sentence_and_touch_it() -> None:
    text = 'name = "x"\n[[templates]]\nid = "1"\nkind = "masked"\ntext = "{s}[]!"\nwords = ["a", "b"]'
    (template,) = parse_definition(text, "my.toml").templates
    assert template.request("S [] {s}", "default") == Masked(("S [] {s}", "!"), (("a",), ("b",)), "sequential")


NEW_TEMPLATES = """
name = "parents"
[[templates]]
id = "1"
kind = "continuation"
text = '"{s}", said my []'
words = ["father", "mother"]
"""


def test_templates_alone_ask_about_gest(tmp_path: Path, data_dir: Path) -> None:
    _, templates = files(tmp_path, templates=NEW_TEMPLATES)
    it = custom(templates=templates)
    assert it.name == "parents"
    assert it.heads == {"causal"}
    loaded = it.load(DataSource(data_dir))
    assert loaded.frame.height == 3565
    assert loaded.frame["family"].sum() == 166
    assert it.plan.groups["16"] == Group(name="strong", polarity="male")


def test_samples_alone_are_asked_as_gest_is(tmp_path: Path) -> None:
    samples, _ = files(tmp_path, samples="sentence,stereotype\nI run.,16\n")
    it = custom(samples=samples)
    # printf 'sentence,stereotype\nI run.,16\n' | sha256sum
    assert it.name == "gest-6e49fb11"
    rendered = it.render(it.load(DataSource()), frozenset({"causal"}), "default")
    assert list(rendered.requests.values()) == [
        Continuation('"I run.",', (" he", " she"), "conditional"),
        Continuation('"I run.", the', (" man", " woman"), "conditional"),
    ]


def test_samples_must_suit_the_definition(tmp_path: Path) -> None:
    samples, templates = files(tmp_path, samples="satz,thema\nIch.,Sport\n")
    with pytest.raises(InputError, match=r"my\.csv, line 2: thema 'Sport' is not one of sport, kluger rat, wetter"):
        custom(samples, templates).load(DataSource())


def test_a_run_restores_the_task_from_its_text(tmp_path: Path) -> None:
    samples, templates = files(tmp_path)
    for it in (custom(samples, templates), custom(templates=templates), custom(samples=samples)):
        assert it.definition is not None
        again = restore(it.name, it.definition, it.made_of)
        assert (again.name, again.heads, again.plan) == (it.name, it.heads, it.plan)  # type: ignore[attr-defined]


def test_a_comment_decides_nothing_of_what_a_text_defines(tmp_path: Path) -> None:
    it = custom(*files(tmp_path))
    again = restore(it.name, f"# not [pairs], nor [eurogest]\n{files(tmp_path)[1].read_text()}")
    assert (type(again), again.name, again.heads) == (type(it), it.name, it.heads)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "age"', 'name = "gest-1.1"', "my.toml: name: 'gest-1.1' is a task of this program: choose another name"),
        ('name = "age"', 'name = "../age"', ", line 2: name: '../age' must consist of letters"),
        ('name = "age"', "", ", line 1: name: missing"),
        ('name = "age"', "name = 7", ", line 2: name: expected a string, not 7"),
        ('name = "age"', 'name = "age', ": not valid TOML: "),
        ('language = "de"', 'langauge = "de"', ", line 3: langauge: unknown key: choose from columns, groups, language, name"),
        ('["young", "old"]', '["young", "young"]', ", line 4: polarity: expected two different strings"),
        ('["young", "old"]', '["young", "old", "new"]', ", line 4: polarity: expected two different strings"),
        ('polarity = "young" }', 'polarity = "male" }', ", line 12: groups.sport.polarity: 'male' is not one of young, old"),
        ('{ name = "sporty", polarity = "young" }', '"sporty"', ", line 12: groups.sport: expected a table, not 'sporty'"),
        ('name = "sporty", ', "", ", line 12: groups.sport.name: missing"),
        ('topic = ["laufe", "Rente"]', 'topic = "Rente"', ", line 5: topic: expected a list, not 'Rente'"),
        ('group = "thema"', 'groups = "thema"', ", line 9: columns.groups: unknown key: choose from group, sentence"),
        ('id = "second"', "id = 2", ", line 23: templates[1].id: expected a string, not 2"),
        ('id = "first"', 'id = "all"', ", line 17: templates[0].id: 'all' is reserved for"),
        ('id = "first"', 'id = "overall"', ", line 17: templates[0].id: 'overall' is reserved for"),
        ("sport = { name", "all = { name", ", line 12: groups.all: 'all' is reserved for all groups together"),
        ('kind = "masked"', 'kind = "mask"', ", line 18: templates[0].kind: 'mask' is not one of masked, continuation"),
        ("„{s}“, sagt", "„s“, sagt", "templates[1].text: '„s“, sagt der[]' must contain {s} (the sentence) exactly once"),
        (
            "Der [] Mensch",
            "Der [] Mensch []",
            ", line 19: templates[0].text: 'Der [] Mensch [] sagt: „{s}“' must contain [] (the words) exactly once",
        ),
        (
            "sagt der[]",
            "sagt der[].",
            ", line 25: templates[1].text: '„{s}“, sagt der[].' must end with []: a continuation is scored after its context",
        ),
        ('["junge", "alte"]', '["junge", "junge"]', ", line 20: templates[0].words: expected two different strings"),
        ('["junge", "alte"]', '["junge", ""]', ", line 20: templates[0].words[1]: expected a string that is not empty, got ''"),
        ('kind = "continuation"', "", ", line 22: templates[1].kind: missing"),
    ],
)
def test_bad_definitions_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert AGE.count(old) == 1
    _, templates = files(tmp_path, templates=AGE.replace(old, new))
    with pytest.raises(InputError) as caught:
        chosen_tasks(("gest",), templates=templates)
    assert str(caught.value).startswith(str(templates))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once_in_the_files_order() -> None:
    wrong = AGE
    changes = {
        'language = "de"': "language = 1",
        'group = "thema"': 'theme = "thema"',
        'kind = "masked"': 'kind = "mask"',
        '"alte"': '"junge"',
        'id = "second"': "",
    }
    for right, mistaken in changes.items():
        wrong = wrong.replace(right, mistaken)
    with pytest.raises(InputError) as caught:
        parse_definition(wrong, "my.toml")
    assert [line.rsplit(": ", 1)[0] for line in str(caught.value).splitlines()] == [
        "my.toml, line 3: language",
        "my.toml, line 9: columns.theme: unknown key",
        "my.toml, line 18: templates[0].kind",
        "my.toml, line 20: templates[0].words",
        "my.toml, line 22: templates[1].id",
    ]


def test_two_templates_of_a_kind_need_two_ids(tmp_path: Path) -> None:
    twice = AGE + AGE[AGE.rindex("[[templates]]") :]
    _, templates = files(tmp_path, templates=twice)
    with pytest.raises(InputError, match=r"templates\[2\]\.id: a second continuation template 'second': rename one"):
        custom(templates=templates)


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    _, templates = files(tmp_path, templates='name = "x"\n\nlanguage = \n')
    with pytest.raises(InputError, match=r"my\.toml: not valid TOML: .*line 3"):
        custom(templates=templates)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*my\.toml: templates expects a TOML file"):
        custom(templates=tmp_path / "my.toml")
    with pytest.raises(InputError, match=r"no such file: .*my\.csv: samples expects a CSV file"):
        custom(samples=tmp_path / "my.csv")
    (tmp_path / "my.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(InputError, match=r"my\.toml, line 1: not UTF-8 \(bytes"):
        custom(templates=tmp_path / "my.toml")
