"""Definitions of older versions, in TOML: they are restored, and mean what the same choices mean now."""

from pathlib import Path
from typing import Any

import pytest

from evaluator.tasks import chosen_tasks, restore
from evaluator.tasks.gest import GestTask
from evaluator.tasks.stored import same_definition

WHO = """[who]
name = "gest-who-text-2orders-2x0.5-3tokens-seed4"
way = "text"
orders = 2
answers = 2
temperature = 0.5
max_tokens = 3
seed = 4
"""
WORDING = 'prompt = "{s} Who? (a) {a} (b) {b} (c) {c}"\nmale = "he"\nfemale = "she"\nneither = "?"\n'
WORDED = r"""[who]
name = "gest-who-text-3tokens-1be59418"
way = "text"
orders = 6
answers = 1
temperature = 0.0
max_tokens = 3
seed = 0
wording = "prompt = \"{s} Who? (a) {a} (b) {b} (c) {c}\"\nmale = \"he\"\nfemale = \"she\"\nneither = \"?\"\n"
"""
EUROGEST = '[eurogest]\nname = "eurogest-de+fi-N"\nlanguages = ["de", "fi"]\ntemplate = "N"\n'
OWN = """name = "own"
[[templates]]
id = "1"
kind = "continuation"
text = '"{s}", []'
words = ["he", "she"]
"""
PAIRS = 'name = "mine"\n[pairs]\nmore = "a"\nless = "b"\n'
PUBLISHED = 'name = "pairs-f3071b75"\n[pairs]\nmore = "sent_more"\nless = "sent_less"\n'
CROWS = "sent_more,sent_less,stereo_antistereo,bias_type\nHe is kind.,She is kind.,stereo,gender\n"

OLD: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "gest-who",
        "gest-who-text-2orders-2x0.5-3tokens-seed4",
        WHO,
        {"way": "text", "orders": 2, "answers": 2, "temperature": 0.5, "max_tokens": 3, "seed": 4},
    ),
    ("gest-who", "gest-who-text-3tokens-1be59418", WORDED, {"way": "text", "max_tokens": 3, "wording": WORDING}),
    ("eurogest", "eurogest-de+fi-N", EUROGEST, {"languages": ["fi", "de"], "template": "N"}),
    ("gest", "own", OWN, {"templates": OWN}),
    ("pairs", "mine", PAIRS, {"templates": PAIRS, "samples": "a,b\nHe is kind.,She is kind.\n"}),
    ("pairs", "pairs-f3071b75", PUBLISHED, {"samples": CROWS}),
]
FILES = ("templates", "samples", "wording")


@pytest.mark.parametrize("made_of", [True, False], ids=["made_of", "older"])
@pytest.mark.parametrize(("task", "name", "definition", "choices"), OLD, ids=[old[1] for old in OLD])
def test_an_old_definition_is_that_of_the_same_choices(
    task: str, name: str, definition: str, choices: dict[str, Any], made_of: bool, tmp_path: Path
) -> None:
    """Also of a version that did not say which task it was made of."""
    entry = {"definition": definition, **({"made_of": task} if made_of else {})}
    for key in choices.keys() & FILES:
        (tmp_path / key).write_text(choices[key])
    given = {key: tmp_path / key if key in FILES else value for key, value in choices.items()}
    (now,) = chosen_tasks((task,), **given)
    again = restore(name, definition, entry.get("made_of"))
    assert (type(again), again.name, again.heads) == (type(now), now.name, now.heads)
    assert now.name == name
    assert now.definition is not None
    assert now.definition.startswith("{")
    assert same_definition(name, entry, {"definition": now.definition, "made_of": now.made_of})
    assert restore(now.name, now.definition, now.made_of).definition == now.definition


def test_sentences_of_ones_own_had_the_whole_of_gests_definition(tmp_path: Path) -> None:
    samples = tmp_path / "own.csv"
    samples.write_text("sentence,stereotype\nI am kind.,1\n")
    (now,) = chosen_tasks(("gest",), samples=samples)
    assert isinstance(now, GestTask)
    assert now.files.templates is not None
    old = now.files.templates.text
    assert f'\nname = "{now.name}"\n' in old
    again = restore(now.name, old)
    assert isinstance(again, GestTask)
    assert again.plan == now.plan
    assert same_definition(now.name, {"definition": old}, {"definition": now.definition, "made_of": "gest"})


def test_other_definitions_stay_others() -> None:
    entry = {"definition": OWN, "made_of": "gest"}
    assert not same_definition("own", entry, {"definition": OWN.replace('"he"', '"He"'), "made_of": "gest"})
    assert not same_definition("own", entry, {"definition": None})
    assert not same_definition("own", entry, {"definition": "no definition", "made_of": "gest"})
