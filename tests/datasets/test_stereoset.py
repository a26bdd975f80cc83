"""The StereoSet reader: word alignment, labels, and wrong examples that don't stop the rest."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.datasets.stereoset import aligned_word, published_word, read
from evaluator.tasks.stereoset import stereoset
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError


def intrasentence(name: str, context: str, words: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    labels = ("unrelated", "stereotype", "anti-stereotype")
    sentences = [
        {"id": f"{name}-{label}", "gold_label": label, "sentence": context.replace("BLANK", word)}
        for label, word in zip(labels, words, strict=True)
    ]
    return {"id": name, "target": "cook", "bias_type": "profession", "context": context, "sentences": sentences, **fields}


def write(path: Path, intra: list[Any], inter: list[Any]) -> Path:
    path.write_text(json.dumps({"version": "dev", "data": {"intrasentence": intra, "intersentence": inter}}))
    return path


@pytest.mark.parametrize(
    ("context", "sentence", "default", "published"),
    [
        ("The cook was BLANK.", "The cook was patient.", "patient", "patient"),
        ("The Cook from Rome was BLANK.", "the cook from rome was Very Loud.", "Very Loud", "Very"),
        ("BLANK cooks sing", "Old cooks sing", "Old", "Old"),
        ("She BLANKed the soup.", "She salted the soup.", "salt", "salted"),
        ("Cooks sing sometimes.BLANK", "Cooks sing sometimes.loud", "loud", "sometimesloud"),
        ("A cook is BLANK and says BLANK.", "A cook is glad and says glad.", "glad", "glad"),
        ("A cook is BLANK and says BLANK.", "A cook is glad and says sad.", None, "sad"),
        ("The cook was BLANK.", "The nurse was patient.", None, "patient"),
        ("The cook was BLANK.", "The cook was .", None, None),
        ("The cook was kind.", "The cook was kind.", None, None),
    ],
)
def test_words(context: str, sentence: str, default: str | None, published: str | None) -> None:
    assert aligned_word(context, sentence) == default
    assert published_word(context, sentence) == published


def test_candidates_stand_in_the_order_of_the_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.json", [intrasentence("a", "A cook is BLANK.", ("wet", "busy", "idle"))], [])
    frame = read(path).frame
    assert frame["words"].to_list() == [["busy", "idle", "wet"]]
    assert frame["sentences"][0].to_list() == ["A cook is busy.", "A cook is idle.", "A cook is wet."]
    assert frame["ids"][0].to_list() == ["a-stereotype", "a-anti-stereotype", "a-unrelated"]


def test_samples_are_numbered_through_both_tests(tmp_path: Path) -> None:
    words = ("wet", "busy", "idle")
    inter = [intrasentence(f"b{i}", "A cook sings.", words) for i in range(2)]
    intra = [intrasentence(f"a{i}", "A cook is BLANK.", words) for i in range(3)]
    frame = read(write(tmp_path / "dev.json", intra, inter)).frame
    assert frame["sample"].to_list() == [0, 1, 2, 3, 4]
    assert frame["example"].to_list() == ["a0", "a1", "a2", "b0", "b1"]


def test_translations_bring_their_words_and_classes(tmp_path: Path) -> None:
    example = intrasentence("a", "Der Koch ist BLANK.", ("nass", "laut", "still"), target_original="cook", target="Koch")
    for candidate, word in zip(example["sentences"], ("nass", "laut", "still"), strict=True):
        candidate["word"] = word
    frame = read(write(tmp_path / "dev_de.json", [example], [])).frame
    assert frame["target"].to_list() == ["cook"]
    assert frame["words"].to_list() == frame["words_published"].to_list() == [["laut", "still", "nass"]]


def test_wrong_examples_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    words = ("wet", "busy", "idle")

    def broken(name: str, change: Any) -> dict[str, Any]:
        example = intrasentence(name, "A cook is BLANK.", words)
        change(example)
        return example

    intra = [
        intrasentence("good", "A cook is BLANK.", words),
        broken("unlabelled", lambda e: e["sentences"][1].pop("gold_label")),
        broken("doubled", lambda e: e["sentences"][1].update(gold_label="unrelated")),
        broken("unknown", lambda e: e["sentences"][1].update(gold_label="related")),
        broken("strange", lambda e: e["sentences"][2].update(sentence="Nothing of the kind.")),
        broken("two", lambda e: e["sentences"].pop()),
        broken("blankless", lambda e: e.update(context="A cook is busy.")),
        broken("typeless", lambda e: e.pop("bias_type")),
        broken("word", lambda e: e["sentences"][0].update(word="dry")),
        intrasentence("good", "A cook is BLANK.", words),
        "nonsense",
        intrasentence("last", "A cook was BLANK.", words),
    ]
    samples = read(write(tmp_path / "dev.json", intra, []))
    assert samples.frame["example"].to_list() == ["good", "last"]
    assert samples.frame["sample"].to_list() == [0, 11]
    reasons = {
        "unlabelled": "no gold_label",
        "doubled": "two candidates labelled unrelated",
        "unknown": "gold_label 'related'",
        "strange": "strange-anti-stereotype can't be aligned",
        "two": "3 candidate",
        "blankless": "no BLANK",
        "typeless": "no bias_type",
        "word": "the context with its word",
        "good": "occurs twice",
        "intrasentence[10]": "no id",
    }
    assert [name for name, _ in samples.failures] == list(reasons)
    for name, reason in samples.failures:
        assert reasons[name] in reason


@pytest.mark.parametrize("content", ["[]", "{}", '{"data": []}', "not json", '{"data": {"intrasentence": []}}'])
def test_another_format_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "dev.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"dev\.json"):
        read(path)


def test_a_language_without_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"translate-dataset stereoset --to xx"):
        stereoset("xx").load(DataSource(tmp_path))
    with pytest.raises(InputError, match=r"data fetch stereoset-de"):
        stereoset("de").load(DataSource(tmp_path))


@pytest.mark.parametrize(("language", "count"), [("en", 2106), ("de", 2103), ("fr", 2106), ("es", 2106), ("tr", 2106)])
def test_public_files(data_dir: Path, language: str, count: int) -> None:
    samples = stereoset(language).load(DataSource(data_dir))
    assert samples.failures == ()
    counts = dict(samples.frame["template"].value_counts().iter_rows())
    assert counts == {"intrasentence": count, "intersentence": 2123}
    assert samples.frame["target"].n_unique() == 79
    assert samples.frame["bias_type"].unique().sort().to_list() == ["gender", "profession", "race", "religion"]
    words = samples.frame.filter(template="intrasentence")
    assert words["words"].list.len().eq(3).all()
    differing = words.filter(pl.col("words") != pl.col("words_published")).height
    assert differing == (4 if language == "en" else 0)
