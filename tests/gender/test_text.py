"""Sentences, clauses and scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.gender.text import Sentence, first_sentence, normalize, one_script, serbian_to_latin


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Prší. Idem domov.", "Prší."),
        ("Prší! Idem domov.", "Prší!"),
        ("Кто там? Это я.", "Кто там?"),
        ("Prší… Idem domov.", "Prší…"),
        ("„Prší.“ Idem domov.", "„Prší.“"),
        ("Bylo to 5. května v Brně.", "Bylo to 5. května v Brně."),
        ("Stretol ma J. Novák a odišiel.", "Stretol ma J. Novák a odišiel."),
        ("Mám napr. jablko a hrušku.", "Mám napr. jablko a hrušku."),  # a small letter follows
        ("Mám napr. šál a čiapku.", "Mám napr. šál a čiapku."),
        ("Prší. Škoda.", "Prší."),
        ("— Дождь. — Вот как?", "— Дождь."),
        ("Bez konca", "Bez konca"),
        ("", ""),
        ("... Idem domov.", "... Idem domov."),  # marks alone are no sentence
    ],
)
def test_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first


def test_clauses_end_at_punctuation_and_conjunctions() -> None:
    sentence = Sentence.read("Viem, že prší a fúka dnes", frozenset({"že", "a"}))
    assert sentence.words == ("viem", ",", "že", "prší", "a", "fúka", "dnes")
    assert list(sentence.clause(0)) == [0]
    assert list(sentence.clause(3)) == [3]
    assert list(sentence.clause(5)) == [5, 6]
    assert [sentence.is_break(i) for i in range(-1, 8)] == [True, False, True, True, False, True, False, False, True]
    assert list(sentence.rightwards(5)) == [6]
    assert list(sentence.leftwards(6)) == [5]
    assert list(sentence.rightwards_over(3, frozenset({"a"}))) == [5, 6]
    assert list(sentence.rightwards_over(3, frozenset())) == []


def test_nearest_goes_by_distance_right_first() -> None:
    sentence = Sentence.read("a b c d e", frozenset())
    assert list(sentence.nearest(1)) == [2, 0, 3, 4]
    assert list(sentence.nearest(4)) == [3, 2, 1, 0]


def test_an_aside_in_commas_is_stepped_over() -> None:
    sentence = Sentence.read("я, конечно, знал", frozenset())
    assert sentence.words[sentence.past_aside(0) + 1] == "знал"
    unclosed = Sentence.read("я, конечно", frozenset())
    assert unclosed.past_aside(0) == 0


def test_serbian_digraphs_and_capitals() -> None:
    assert serbian_to_latin("Љиљана, Џон и Њњ. ЂЖЋЧШ ljubav") == "Ljiljana, Džon i Njnj. ĐŽĆČŠ ljubav"


def test_one_script_leaves_latin_words_alone() -> None:
    assert one_script("IT и кoт") == "IT и кот"


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    sentence = Sentence.read(first_sentence(normalize(text)), frozenset({"a"}))
    assert len(sentence.words) == len(sentence.surface) == len(sentence.starts) == len(sentence.ends)
    for position in range(len(sentence.words)):
        inside = [p for p in sentence.clause(position) if p != position]
        assert sorted([*sentence.leftwards(position), *sentence.rightwards(position)]) == inside or sentence.is_break(position)
        assert list(sentence.rightwards_over(position, frozenset({"a"})))[: len(sentence.rightwards(position))] == list(
            sentence.rightwards(position)
        )
