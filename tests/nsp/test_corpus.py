"""Corpora: articles, sentences, pairs."""

import json
from pathlib import Path

import numpy as np
import pytest

from evaluator.nsp.corpus import SentencePairs, articles, sentences
from evaluator_serving.errors import InputError


def test_articles(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "Third."}) + "\n\n" + json.dumps({"text": "Fourth."}) + "\n")
    (tmp_path / "a.txt").write_text("First.\nStill first.\n\n\nSecond.\n")
    assert list(articles([tmp_path])) == ["First.\nStill first.\n", "Second.\n", "Third.", "Fourth."]


@pytest.mark.parametrize("line", ["{", "[]", '{"title": "x"}', '{"text": 3}'])
def test_wrong_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "Fine."}) + "\n" + line + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl, line 2"):
        list(articles([path]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. We stay in. 12 came!", ["It rains.", "We stay in.", "12 came!"]),
        ('He said: "Go." She went.', ['He said: "Go."', "She went."]),
        ("Dr. Berg met J. Smith. They ate.", ["Dr. Berg met J. Smith.", "They ate."]),
        ("It cost 3.5 kg. of sugar.", ["It cost 3.5 kg. of sugar."]),
        ("¿Vienes? ¡Claro! Ándale.", ["¿Vienes?", "¡Claro!", "Ándale."]),
        ("A heading\nA sentence", ["A heading", "A sentence"]),
        ("  ", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_pairs() -> None:
    corpus = [[f"{article}-{i}" for i in range(length)] for article, length in enumerate((3, 1, 4, 2))]
    pairs = SentencePairs.of(corpus)
    assert len(pairs) == 2 * (2 + 3 + 1)
    epoch = pairs.epoch(3, 0)
    first, second, labels = epoch.batch(0, len(pairs))
    consecutive = sorted(zip(first, second, strict=True)) if all(labels) else None
    assert consecutive is None
    kept = {0, 2, 3}
    expected = {(f"{a}-{i}", f"{a}-{i + 1}") for a in kept for i in range(len(corpus[a]) - 1)}
    assert {(f, s) for f, s, label in zip(first, second, labels, strict=True) if label} == expected
    negatives = [(f, s) for f, s, label in zip(first, second, labels, strict=True) if not label]
    assert sorted(f for f, _ in negatives) == sorted(f for f, _ in expected)
    assert all(f.split("-")[0] != s.split("-")[0] for f, s in negatives)
    again = pairs.epoch(3, 0)
    assert np.array_equal(again.order, epoch.order)
    assert np.array_equal(again.others, epoch.others)
    assert not np.array_equal(pairs.epoch(3, 1).order, epoch.order)


def test_too_few_articles() -> None:
    with pytest.raises(InputError, match="at least two"):
        SentencePairs.of([["a", "b"], ["c"]])
