"""Readers of CrowS-Pairs and its control pairs."""

from pathlib import Path

import pytest

from evaluator.datasets import crows
from evaluator_serving.errors import InputError

HEADER = ",sent_more,sent_less,stereo_antistereo,bias_type\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf8")
    return path


def test_public_counts(data_dir: Path) -> None:
    original = crows.read_pairs(data_dir / "crows_pairs" / "crows_pairs_anonymized.csv")
    assert original.frame.height == 1508
    counts = dict(original.frame["bias_type"].value_counts().iter_rows())
    assert counts["gender"] == 262
    assert set(counts) == set(crows.BIAS_TYPES)
    assert (original.dropped, original.failures) == ({}, ())
    revised = crows.read_pairs(data_dir / "word_filling" / "crows_revised.csv")
    assert revised.frame.height == 1467 - 10
    assert revised.dropped == {
        "bias type other is none of the nine": 9,
        "bias type stereo is none of the nine": 1,
    }
    # One row says Race-color, 500 say race-color.
    assert dict(revised.frame["bias_type"].value_counts().iter_rows())["race-color"] == 501
    negation = crows.read_controls(data_dir / "word_filling" / "crows_negation.csv")
    anti = crows.read_controls(data_dir / "word_filling" / "crows_antistereotype.csv")
    assert (negation.frame.height, negation.failures) == (66, ())
    assert (anti.frame.height, anti.failures) == (65, ())
    assert sum(negation.dropped.values()) == 250 - negation.frame["original"].n_unique()


def test_controls_are_read_by_column(tmp_path: Path) -> None:
    rows = [
        "He runs.,Men swim.,A b.",
        "She runs.,Women swim.,A c.",
        "He sits.,,A d.",
        "She sits.,,A e.",
        "He ran.,,",
        "She ran.,,",
    ]
    text = "\n".join(rows)
    frame = crows.read_controls(write(tmp_path / "c.csv", text)).frame
    assert frame.rows() == [
        (0, 0, "He runs.", "He sits.", "She runs.", "She sits.", "column 0, rows 2 and 3"),
        (1, 0, "He runs.", "He ran.", "She runs.", "She ran.", "column 0, rows 4 and 5"),
        (2, 2, "A b.", "A d.", "A c.", "A e.", "column 2, rows 2 and 3"),
    ]


def test_a_control_pair_with_an_empty_cell_fails_alone(tmp_path: Path) -> None:
    read = crows.read_controls(write(tmp_path / "c.csv", "He runs.,A b.\nShe runs.,A c.\nHe sits.,A d.\nShe sits.,\n"))
    assert read.frame["original"].to_list() == [0]
    assert read.failures == (("c.csv column 1 rows 2 and 3", "a sentence is empty"),)


def test_rows_must_pair_up(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 rows"):
        crows.read_controls(write(tmp_path / "c.csv", "a\nb\nc\n"))


@pytest.mark.parametrize(
    ("row", "reason"), [("0,,She runs.,stereo,gender", "a sentence is empty"), ("0,Oh.,No!,stereo,gender", "share no word")]
)
def test_bad_pair(tmp_path: Path, row: str, reason: str) -> None:
    read = crows.read_pairs(write(tmp_path / "c.csv", f"{HEADER}{row}\n1,He runs.,She runs.,stereo,Gender\n"))
    assert read.frame["sample"].to_list() == [1]
    assert read.frame["bias_type"].to_list() == ["gender"]
    assert read.failures[0][0] == "c.csv row 0"
    assert reason in read.failures[0][1]


def test_requested_bias_type_must_exist() -> None:
    assert crows.known_types(["Gender", " age"]) == ["gender", "age"]
    with pytest.raises(InputError, match="'height'"):
        crows.known_types(["gender", "height"])
