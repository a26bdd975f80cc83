"""What is taken off a language model's answer, and what isn't."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.translate.parsing import parse_answer

SOURCE = "I work."


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Pracujem.", "Pracujem."),
        ("  Pracujem.\n", "Pracujem."),
        ('"Pracujem."', "Pracujem."),
        ("„Pracujem.“", "Pracujem."),
        ("«Pracujem.»", "Pracujem."),
        ("**Pracujem.**", "Pracujem."),
        ("Here is the translation:\nPracujem.", "Pracujem."),
        ("**Here is the translation:**\n\n„Pracujem.“", "Pracujem."),
        ("Translation: Pracujem.", "Pracujem."),
        ("Slovak: „Pracujem.“", "Pracujem."),
        ("**Slovak translation:** Pracujem.", "Pracujem."),
        ("Translation into Slovak: Pracujem.", "Pracujem."),
        ("Pracujem.\n\nNote: the verb has no gender.", "Pracujem."),
        ("Pracujem. (Note: informal)", "Pracujem."),
        ("Pracujem\na spím.", "Pracujem a spím."),
        # What is no decoration stays.
        ("Povedal: pracujem.", "Povedal: pracujem."),
        ("„Áno“ a „nie“", "„Áno“ a „nie“"),
        ('"Áno" a "nie"', '"Áno" a "nie"'),
        ("Pracujem (doma).", "Pracujem (doma)."),
        ("Pracujem:", "Pracujem:"),
    ],
)
def test_what_is_around_a_translation_goes(said: str, text: str) -> None:
    found = parse_answer(said, "stop", SOURCE, "Slovak")
    assert (found.text, found.outcome) == (text, "translated")


def test_marks_of_the_source_are_the_translations() -> None:
    assert parse_answer('"Pracujem."', "stop", '"I work."', "Slovak").text == '"Pracujem."'
    assert parse_answer("Prvý.\n\nDruhý.", "stop", "First.\n\nSecond.", "Slovak").text == "Prvý.\n\nDruhý."


@pytest.mark.parametrize(
    ("said", "finish", "source", "outcome"),
    [
        ("", "stop", SOURCE, "empty"),
        ('""', "stop", SOURCE, "empty"),
        (" \n", "length", SOURCE, "empty"),
        ("Nie.", "refused", SOURCE, "refused"),
        ("", "filtered", SOURCE, "refused"),
        ("I’m sorry, but I can't translate that.", "stop", SOURCE, "refused"),
        ("Sorry, ich arbeite.", "stop", "Sorry, I work.", "translated"),
        ("Pracujem a", "length", SOURCE, "cut"),
    ],
)
def test_what_becomes_of_a_question(said: str, finish: str, source: str, outcome: str) -> None:
    found = parse_answer(said, finish, source, "Slovak")  # type: ignore[arg-type]
    assert found.outcome == outcome
    assert (not found.text) == (outcome in ("empty", "refused"))


@given(st.text(st.characters(categories=["Ll", "Lu", "Zs"]), min_size=1).map(str.strip).filter(bool))
def test_plain_words_stay_as_they_are(words: str) -> None:
    found = parse_answer(words, "stop", SOURCE, "Slovak")
    assert found.outcome == "refused" or found.text == words
