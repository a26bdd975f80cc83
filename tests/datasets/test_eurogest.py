"""EuroGEST's files: all of them as published, and files made up with everything that can be wrong in them."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from evaluator.datasets.eurogest import (
    GENDERED_FILE,
    HUB,
    LANGUAGES,
    NEUTRAL_FILE,
    QUOTES_FILE,
    SCAFFOLD_FILE,
    known_languages,
    read_frames,
    read_hub,
    read_tables,
)
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

# fmt: off
SIXTEEN = ("da", "nl", "sv", "no", "fi", "hu", "et", "tr", "ro", "es", "fr", "de", "pt", "it", "el", "bg")
# fmt: on
OTHERS = tuple(code for code in LANGUAGES if code != "en")


@pytest.fixture(scope="module")
def whole(data_dir: Path) -> Samples:
    folder = data_dir / "eurogest"
    english = data_dir / "gest" / "gest_1.1.csv"
    return read_tables(folder / NEUTRAL_FILE, folder / GENDERED_FILE, tuple(LANGUAGES), english)


def listed(data_dir: Path) -> dict[str, tuple[int, int]]:
    """Language → rows (neutral, pairs), as the data's own list has them."""
    text = (data_dir / "eurogest" / "README.md").read_text(encoding="utf8")
    (line,) = [line for line in text.splitlines() if "Rows per language" in line]
    found = re.findall(r"\b([a-z]{2}) ([\d,]+)\+([\d,]+)", line)
    return {code: (int(neutral.replace(",", "")), int(pairs.replace(",", ""))) for code, neutral, pairs in found}


def test_every_language_has_the_published_rows(whole: Samples, data_dir: Path) -> None:
    counted = dict.fromkeys(LANGUAGES, (0, 0))
    for code, kind, n in whole.frame.group_by("language", "kind").len().iter_rows():
        neutral, pairs = counted[code]
        counted[code] = (n, pairs) if kind == "neutral" else (neutral, n)
    assert counted == listed(data_dir)
    others = [rows for code, rows in counted.items() if code != "en"]
    assert tuple(map(sum, zip(*others, strict=True))) == (56497, 14538)
    assert whole.failures == ()
    assert sum(whole.dropped.values()) == 2


def test_stereotypes_are_those_of_gest(whole: Samples, data_dir: Path) -> None:
    """Of every row of every language, so that counts by stereotype add up; read here in another way."""
    with (data_dir / "gest" / "gest_1.1.csv").open(encoding="utf8", newline="") as file:
        stereotypes = [row["stereotype"] for row in csv.DictReader(file)]
    assert whole.frame["group"].to_list() == [stereotypes[row] for row in whole.frame["row"]]
    by_group = (
        whole.frame.group_by("language", "group").len().group_by("language").agg(pl.col("len").sum(), pl.len().alias("k"))
    )
    by_language = dict(whole.frame.group_by("language").len().iter_rows())
    assert {code: n for code, n, _ in by_group.iter_rows()} == by_language
    assert set(by_group["k"]) == {16}


def test_a_row_is_a_sentence_once(whole: Samples) -> None:
    assert not whole.frame.select("language", "row").is_duplicated().any()
    assert whole.frame["sample"].to_list() == list(range(whole.frame.height))
    neutral = pl.col("kind") == "neutral"
    there = pl.col("neutral").is_not_null() == neutral, pl.col("masculine").is_not_null() != neutral
    assert whole.frame.select(pl.all_horizontal(*there).all()).item()


@pytest.mark.parametrize(("codes", "rows"), [(OTHERS, 21), (SIXTEEN, 776)])
def test_common_rows(whole: Samples, codes: Sequence[str], rows: int) -> None:
    counts = whole.frame.filter(pl.col("language").is_in(list(codes))).group_by("row").len()
    assert counts.filter(pl.col("len") == len(codes)).height == rows


def test_languages_are_kept_in_one_order_and_checked() -> None:
    assert known_languages(()) == tuple(LANGUAGES)
    assert known_languages(("fi", "cs")) == ("cs", "fi")
    with pytest.raises(InputError, match=r"EuroGEST has no language 'sr': choose from bg, ca, "):
        known_languages(("sr",))


# --- files made up ---------------------------------------------------------------------------------------------------------


def table(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def made(folder: Path, neutral: Sequence[Sequence[object]], gendered: Sequence[Sequence[object]]) -> tuple[Path, Path]:
    """Both tables for Czech and Finnish (which has no pairs)."""
    first = ["", "GEST_sentence", "Czech", "Finnish", "stereotype_number"]
    second = ["Language", "GEST_sentence", "Czech", "Czech", "stereotype_number"]
    prompts = ["Prompt", "Unnamed", "the man said", "the woman said", ""]
    return table(folder / NEUTRAL_FILE, [first, *neutral]), table(folder / GENDERED_FILE, [second, prompts, *gendered])


def test_traps(tmp_path: Path) -> None:
    """Outer blanks and full stops stay, blank rows are counted, what contradicts itself is told."""
    paths = made(
        tmp_path,
        [[0, "A.", " Ano. ", "Joo.", "9.0"], [1, "B.", "", "Ei.", "2"], [2, "C.", "   ", "", "3.0"], [3565, "", "", "", ""]],
        [
            [1, "B.", "Rád", "Ráda", 2],
            [2, "C.", "Sám", "", 3],
            [3, "D.", "Je", "Je ", 3],
            [0, "A.", "Byl", "Byla", 9],
            [3565, "", "", "", ""],
        ],
    )
    found = read_tables(*paths, ("cs", "fi"))
    rows = found.frame.select("language", "row", "kind", "group", "neutral", "masculine", "feminine").rows()
    assert rows == [
        ("cs", 0, "neutral", "9", " Ano. ", None, None),
        ("cs", 1, "gendered", "2", None, "Rád", "Ráda"),
        ("fi", 0, "neutral", "9", "Joo.", None, None),
        ("fi", 1, "neutral", "2", "Ei.", None, None),
    ]
    assert found.dropped == {f"blank rows of {NEUTRAL_FILE}": 1, f"blank rows of {GENDERED_FILE}": 1}
    assert found.failures == (
        (f"{GENDERED_FILE} row 2", "Czech: one sentence of the pair is empty"),
        (f"{GENDERED_FILE} row 3", "Czech: both sentences of the pair are equal"),
        (f"{GENDERED_FILE} row 0", "Czech: GEST row 0 occurs twice; the first one is used"),
    )


@pytest.mark.parametrize(
    ("neutral", "gendered", "message"),
    [
        ([[4000, "A.", "Ano", "", 1]], [], "line 2: '4000' is not a row of GEST 1.1 (0 to 3564): correct the row"),
        ([["x", "A.", "Ano", "", 1]], [], "line 2: 'x' is not a row of GEST 1.1"),
        ([[0, "A.", "Ano", "", 17]], [], "line 2: stereotype '17' is not one of 1 to 16: correct the row"),
        ([[0, "A.", "Ano", "", 1]], [[0, "A.", "b", "c", "?"]], "line 3: stereotype '?' is not one of 1 to 16"),
        ([], [[0, "A.", "b", "c", "1"]], "no sentence in Finnish: restore the files"),
    ],
)
def test_wrong_rows_are_refused(
    tmp_path: Path, neutral: list[list[object]], gendered: list[list[object]], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_tables(*made(tmp_path, neutral, gendered), ("cs", "fi"))


def test_a_language_without_a_column_is_refused(tmp_path: Path) -> None:
    paths = made(tmp_path, [[0, "A.", "Ano", "Joo", 1]], [])
    with pytest.raises(InputError, match=r"line 1: the header must name the column 'German' once: restore the file"):
        read_tables(*paths, ("de",))
    table(paths[1], [["Language", "GEST_sentence", "Czech", "stereotype_number"], ["Prompt", "", "the man said", ""]])
    with pytest.raises(InputError, match=r"line 2: Czech must have the columns 'the man said' and 'the woman said'"):
        read_tables(*paths, ("cs",))


def test_the_hubs_layout(tmp_path: Path) -> None:
    """One file per language; English is a file or GEST 1.1."""
    table(
        tmp_path / "Czech.csv",
        [
            [*HUB, "Comment"],
            [0, "A.", "", "", "Ano", "9.0", "x"],
            [7, "B.", "Rád", "Ráda", "", 2, ""],
            [8, "C.", "", "", "", 2, ""],
            [9, "D.", "Sám", "Sám", "", 2, ""],
        ],
    )
    english = table(tmp_path / "gest_1.1.csv", [["sentence", "stereotype"], ["A.", "9"]])
    found = read_hub(tmp_path, ("cs", "en"), english)
    assert found.frame.select("language", "row", "group", "neutral", "masculine").rows() == [
        ("cs", 0, "9", "Ano", None),
        ("cs", 7, "2", None, "Rád"),
        ("en", 0, "9", "A.", None),
    ]
    assert found.dropped == {"rows of Czech.csv without a sentence": 1}
    assert found.failures == (("Czech.csv row 9", "Czech: both sentences of the pair are equal"),)
    with pytest.raises(InputError, match=r"German\.csv: download it from EuroGEST's repository on the Hub, or omit de"):
        read_hub(tmp_path, ("de",))


def test_frames_are_the_published_ones(data_dir: Path) -> None:
    folder = data_dir / "eurogest"
    frames = read_frames(folder / SCAFFOLD_FILE, folder / QUOTES_FILE)
    assert frames.quotes["fr"] == ("« ", " »,")
    assert frames.scaffolds["she said"]["fr"] == "a-t-elle déclaré "
    assert frames.scaffolds["she said"]["en"] == "she said"
    assert set(frames.quotes) == set(frames.scaffolds["he said"]) == set(LANGUAGES)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (SCAFFOLD_FILE, lambda it: it.pop("he said"), "lacks scaffolds 'he said'"),
        (SCAFFOLD_FILE, lambda it: it.update(x=it["he said"]), "has the unknown scaffolds 'x'"),
        (SCAFFOLD_FILE, lambda it: it["he said"].pop("Czech"), "lacks languages of 'he said' 'Czech'"),
        (SCAFFOLD_FILE, lambda it: it["he said"].update(Czech=" "), "'he said': every language needs a text"),
        (QUOTES_FILE, lambda it: it.pop("Irish"), "lacks languages 'Irish'"),
        (QUOTES_FILE, lambda it: it.update(Irish=["x"]), "every language needs an opening and a closing mark"),
    ],
)
def test_other_versions_of_the_frames_are_refused(
    data_dir: Path, tmp_path: Path, file: str, change: Callable[[dict[str, object]], object], message: str
) -> None:
    paths = {}
    for name in (SCAFFOLD_FILE, QUOTES_FILE):
        content = json.loads((data_dir / "eurogest" / name).read_text(encoding="utf8"))
        if name == file:
            change(content)
        paths[name] = tmp_path / name
        paths[name].write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(InputError, match=re.escape(message)):
        read_frames(paths[SCAFFOLD_FILE], paths[QUOTES_FILE])


def test_frames_that_are_no_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SCAFFOLD_FILE
    path.write_text("[]")
    with pytest.raises(InputError, match="not the object that EuroGEST publishes: restore the file"):
        read_frames(path, path)
    path.write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        read_frames(path, path)
