"""The shipped demonstration set has the shape it promises and takes nothing from GEST."""

import csv
import re
from collections import Counter
from pathlib import Path

import polars as pl

from evaluator.datasets import registry
from evaluator.datasets.gest import STEREOTYPES, read_sentences
from evaluator.tasks import task
from evaluator.vocabulary import DataSource

DEMO = Path(registry.__file__).parent / "demo" / "gest_demo.csv"


def read_gest(path: Path) -> pl.DataFrame:
    return read_sentences(path, "sentence", "stereotype", STEREOTYPES)


def words(sentence: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", sentence.lower()))


def test_ten_sentences_a_stereotype_in_gests_format() -> None:
    with DEMO.open(encoding="utf-8", newline="") as lines:
        assert next(csv.reader(lines)) == ["sentence", "stereotype"]
    frame = read_gest(DEMO)
    assert Counter(frame["group"]) == {str(i): 10 for i in range(1, 17)}
    assert frame["sentence"].n_unique() == 160


def test_every_sentence_is_a_first_persons() -> None:
    first = {"i", "me", "my", "mine", "myself", "i'm", "i've", "i'd"}
    assert [s for s in read_gest(DEMO)["sentence"] if not words(s) & first] == []


def test_every_sentence_ends_in_punctuation_and_is_ascii() -> None:
    assert [s for s in read_gest(DEMO)["sentence"] if s[-1] not in ".!?" or not s.isascii() or s != s.strip()] == []


def test_it_needs_no_data_folder(tmp_path: Path) -> None:
    loaded = task("gest-demo").load(DataSource(tmp_path))
    assert loaded.frame.height == 160
    assert loaded.frame["family"].sum() > 0


def test_no_sentence_is_close_to_one_of_gest(data_dir: Path) -> None:
    real = [words(s) for name in ("gest.csv", "gest_1.1.csv") for s in read_gest(data_dir / "gest" / name)["sentence"]]
    having: dict[str, list[int]] = {}
    for i, sentence in enumerate(real):
        for word in sentence:
            having.setdefault(word, []).append(i)
    for mine in map(words, read_gest(DEMO)["sentence"]):
        shared = Counter(i for word in mine for i in having.get(word, ()))
        # words in both over words in either
        assert max(n / (len(mine) + len(real[i]) - n) for i, n in shared.items()) < 0.5, mine
