"""Files of sentence pairs: published layouts of CrowS-Pairs (made up here) and the user's own, and what is wrong in them."""

import hashlib
import re
from pathlib import Path

import pytest

from evaluator.datasets.crows import read_pairs as read_crows
from evaluator.datasets.pairs import Columns, read_english, read_pairs
from evaluator_serving.errors import InputError

HEADER = "sent_more,sent_less,stereo_antistereo,bias_type"


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "pairs.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_french_layout(tmp_path: Path) -> None:
    """Tabs in a file called csv, an index in front, commas in the sentences."""
    text = "\tsent_more\tsent_less\tstereo_antistereo\tbias_type\n"
    text += '0\t"Elle pleure, dit-on."\t"Il pleure, dit-on."\tstereo\tgender\n1\tA.\tB.\tantistereo\tautre\n'
    assert read_pairs(write(tmp_path, text)).frame.rows() == [
        (0, "gender", "en", "stereo", "Elle pleure, dit-on.", "Il pleure, dit-on."),
        (1, "autre", "en", "antistereo", "A.", "B."),
    ]


def test_the_published_dutch_file_alone_is_windows_1252(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up file that begins as it does. Nothing else is, nor one of its rows in UTF-8 beside others in Windows-1252."""
    text = f"{HEADER}\nZij kookt.,Hij kookt.,stereo,gender\n“Zij huilt”,“Hij huilt”,stereo,Gender\n"
    path = write(tmp_path, text, "cp1252")
    with pytest.raises(InputError, match="line 3: not UTF-8"):
        read_pairs(path)
    first = hashlib.sha256(b"Zij kookt.\nHij kookt.").hexdigest()
    monkeypatch.setattr("evaluator.datasets.pairs._DUTCH_FIRST", first)
    found = read_pairs(path)
    assert found.frame.row(1)[4:] == ("“Zij huilt”", "“Hij huilt”")
    assert found.facts == {"read_as": {"pairs.csv": {"encoding": "cp1252", "delimiter": ","}}}
    path.write_bytes(text.encode() + "“Zij”,“Hij”,stereo,gender\n".encode("cp1252"))
    with pytest.raises(InputError, match="line 4: not UTF-8"):
        read_pairs(path)
    assert read_pairs(write(tmp_path, text)).facts == {"read_as": {"pairs.csv": {"encoding": "UTF-8", "delimiter": ","}}}


def test_multilingual_layout(tmp_path: Path) -> None:
    """A language beside the English original: its code is in the columns' names."""
    text = (
        "id;sent_more;sent_less;sent_more_ca_ES;sent_less_ca_ES;bias_type;stereo_antistereo\n7;A.;B.;Ella.;Ell.;gender;stereo\n"
    )
    assert read_pairs(write(tmp_path, text)).frame.rows() == [(0, "gender", "ca", "stereo", "Ella.", "Ell.")]


def test_a_layout_without_groups_and_directions(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, "sent_more,sent_less\nA,B\n")).frame.rows() == [(0, "pairs", "en", None, "A", "B")]


def test_a_group_may_be_called_like_a_direction_where_there_are_none(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, "sent_more,sent_less,bias_type\nA,B,stereo\n")).frame["group"].to_list() == ["stereo"]


def test_own_columns(tmp_path: Path) -> None:
    columns = Columns("a", "b", group="topic", direction=None, language_column="lang")
    found = read_pairs(write(tmp_path, "lang,topic,a,b\nNL,x,Zij.,Hij.\nfr,y,Elle.,Il.\n"), columns)
    assert found.frame.rows() == [(0, "x", "nl", None, "Zij.", "Hij."), (1, "y", "fr", None, "Elle.", "Il.")]


def test_groups_keep_their_capitals(tmp_path: Path) -> None:
    """Spellings that differ by case alone are one group: that in lower case where there is one, else the first."""
    rows = [f"A{i}.,B{i}.,{group}\n" for i, group in enumerate(["Alter", "ALTER", "Beruf", "beruf", "DDR"])]
    found = read_pairs(write(tmp_path, "sent_more,sent_less,bias_type\n" + "".join(rows)))
    assert found.frame["group"].to_list() == ["Alter", "Alter", "beruf", "beruf", "DDR"]


def test_a_left_out_row_is_told_with_its_line(tmp_path: Path) -> None:
    """The line where the row begins, though rows before it span several."""
    text = 'sent_more,sent_less\n"A\nb.","C\nd."\nE.,E.\nF.,G.\n'
    assert read_pairs(write(tmp_path, text)).failures == (("pairs.csv, line 5", "both sentences of the pair are equal"),)


def test_wrong_rows_are_left_out_and_told(tmp_path: Path) -> None:
    text = f"{HEADER}\nA.,A. ,stereo,x\n,B.,stereo,x\nA.,B.,stereo,\nA.,B.,stereo,x\n"
    found = read_pairs(write(tmp_path, text))
    assert found.frame["sample"].to_list() == [3]
    assert found.failures == (
        ("pairs.csv, line 2", "both sentences of the pair are equal"),
        ("pairs.csv, line 3", "one sentence of the pair is empty"),
        ("pairs.csv, line 4", "the column bias_type is empty"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\nA.,B.,up,x\n", "line 2: stereo_antistereo 'up' is not one of stereo, antistereo: correct"),
        (f"{HEADER}\nA.,B.,,x\n", "stereo_antistereo '' is not one of stereo, antistereo"),
        (f"{HEADER}\nA.,A.,stereo,x\n", "no usable pair in 1 rows; the first: both sentences of the pair are equal"),
        (f"{HEADER}\n", "no usable pair in 0 rows"),
        ("more,less\nA,B\n", "line 1: no column 'sent_more' (found: more, less)"),
        (f'{HEADER}\n"A.,B.,stereo,x\n', "not valid CSV"),
        (f"{HEADER}\nA.,B.,stereo\n", "line 2: 3 fields instead of 4"),
        ("", "line 1: no column 'sent_more'"),
        ("sent_more,sent_less,sent_more\nA,B,C\n", "line 1: 2 columns 'sent_more': the header must name it once"),
        (
            f"{HEADER}\nA.,B.,stereo,x\nA.,C.,stereo,Antistereo\n",
            "line 3: bias_type 'Antistereo' is reserved for",
        ),
        ("sent_more,sent_less,bias_type\nA.,B.,All\n", "line 2: bias_type 'All' is reserved for rates"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_pairs(write(tmp_path, text))


def test_absent_and_undecodable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*none\.csv: give a CSV"):
        read_pairs(tmp_path / "none.csv")
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"sent_more,sent_less\n\x81\xff,b\n")
    with pytest.raises(
        InputError,
        match=r"line 2: not UTF-8 \(bytes 81 in .*\): save the file as UTF-8, or name its encoding \(--encoding cp1250",
    ):
        read_pairs(path)


def test_english_crows_pairs_are_all_there(data_dir: Path) -> None:
    path = data_dir / "crows_pairs" / "crows_pairs_anonymized.csv"
    found, known = read_english(path), read_crows(path)
    assert found.frame.height == 1508
    assert (found.dropped, found.failures) == ({}, ())
    assert found.frame["more"].to_list() == known.frame["s0"].to_list()
    assert found.frame.drop("language", "direction").rows() == read_pairs(path).frame.drop("language", "direction").rows()
