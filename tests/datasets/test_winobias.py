"""The WinoBias reader and its noise filter."""

from pathlib import Path

import pytest

from evaluator.datasets import winobias
from evaluator_serving.errors import InputError


def folder(path: Path, pro: str, anti: str) -> Path:
    """A WinoBias folder in which the first split holds the given lines and the others one good line."""
    good = ("1 [The cook] said that [he] left.\n", "1 [The cook] said that [she] left.\n")
    for split in winobias.SPLITS:
        kind, part = split.split("-")
        for side, mine, other in (("pro", pro, good[0]), ("anti", anti, good[1])):
            text = mine if split == winobias.SPLITS[0] else other
            (path / f"{side}_stereotyped_{kind}.txt.{part}").write_text(text, encoding="utf8")
    (path / "male_occupations.txt").write_text("cook\nguard\n", encoding="utf8")
    (path / "female_occupations.txt").write_text("nurse\n", encoding="utf8")
    return path


def test_public_counts(data_dir: Path) -> None:
    for side in ("pro", "anti"):
        for split in winobias.SPLITS:
            kind, part = split.split("-")
            path = data_dir / "winobias" / f"{side}_stereotyped_{kind}.txt.{part}"
            assert len(path.read_text(encoding="utf8").splitlines()) == 396
    read = winobias.read(data_dir / "winobias")
    kept = dict(read.frame["split"].value_counts().iter_rows())
    assert [kept[split] for split in winobias.SPLITS] == [393, 391, 386, 392]
    assert list(read.dropped.values()) == [3, 5, 10, 4]
    assert read.failures == ()
    # Both versions can be put together again, and every one has a pronoun.
    for parts, male, female in read.frame.select("parts", "male", "female").iter_rows():
        assert len(parts) == len(male) + 1 == len(female) + 1
        assert any((m.lower(), f.lower()) in winobias.PRONOUNS for m, f in zip(male, female, strict=True))


def test_slots_and_gender(tmp_path: Path) -> None:
    pro = "1 [The nurse] said [she] hurt [herself], not the cook.\n"
    anti = "1 [The nurse] said [he] hurt [himself], not the cook.\n"
    row = winobias.read(folder(tmp_path, pro, anti)).frame.row(0, named=True)
    assert row["gender"] == "female"
    assert row["occupation"] == "nurse"
    assert row["parts"] == ["The nurse said ", " hurt ", ", not the cook."]
    assert (row["male"], row["female"]) == (["he", "himself"], ["she", "herself"])


@pytest.mark.parametrize(
    ("pro", "anti", "reason"),
    [
        ("1 [The cook] saw that [he] left.", "2 [The cook] saw that [she] left.", "same number"),
        ("[The cook] saw that [he] left.", "[The cook] saw that [she] left.", "same number"),
        ("1 The cook saw that [he] left.", "1 The cook saw that [she] left.", "0 listed occupations"),
        ("1 [The poet] saw that [he] left.", "1 [The poet] saw that [she] left.", "0 listed occupations"),
        ("1 [The cook] saw that [he] left.", "1 [The cook] saw that [he] left.", "don't differ"),
        ("1 [The cook] gave [him] her hat.", "1 [The cook] gave [her] his hat.", "not of one gender"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, pro: str, anti: str, reason: str) -> None:
    read = winobias.read(folder(tmp_path, pro, anti))
    assert read.failures[0][0] == "type1-dev line 1"
    assert reason in read.failures[0][1]
    assert read.frame.height == 3


def test_noise_is_dropped_and_counted(tmp_path: Path) -> None:
    pro, anti = "1 [The cook] left as [he] was tired.\n", "1 [The cook] left as [she] was rude.\n"
    read = winobias.read(folder(tmp_path, pro, anti))
    assert read.dropped == {"type1-dev: the two versions differ in more than pronouns": 1}


def test_files_must_align(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 and 1 lines"):
        winobias.read(folder(tmp_path, "1 a\n2 b\n", "1 a\n"))
