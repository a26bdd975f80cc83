"""The reader of sentences and groups: what it keeps, and one line for every way a file can be wrong."""

from pathlib import Path

import polars as pl
import pytest

from evaluator.datasets.gest import STEREOTYPES, read_sentences
from evaluator_serving.errors import InputError


def read_gest(path: Path) -> pl.DataFrame:
    return read_sentences(path, "sentence", "stereotype", STEREOTYPES)


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "my.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_are_kept_in_order_and_as_they_stand(tmp_path: Path) -> None:
    content = (
        'stereotype,extra,sentence\r\n16,,"I said ""no"", twice."\r\n1,x, spaced \r\n\r\n 16 ,,"I said ""no"", twice."\r\n'
    )
    frame = read_gest(written(tmp_path, content))
    assert frame.columns == ["sample", "sentence", "group"]
    assert frame.rows() == [(0, 'I said "no", twice.', "16"), (1, " spaced ", "1"), (2, 'I said "no", twice.', "16")]


def test_a_sentence_may_span_lines_and_the_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    frame = read_gest(written(tmp_path, b'\xef\xbb\xbfsentence,stereotype\n"one\ntwo \xc3\xa9",3\n'))
    assert frame.rows() == [(0, "one\ntwo é", "3")]


def test_other_columns_and_groups(tmp_path: Path) -> None:
    frame = read_sentences(written(tmp_path, "text,class\nA,x\nB,y z\n"), "text", "class", ["x", "y z"])
    assert frame.rows() == [(0, "A", "x"), (1, "B", "y z")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence,stereotype\nA,1\nB,17\n", "my.csv, line 3: stereotype '17' is not one of 1 to 16: correct the row"),
        ("sentence,stereotype\nA,0\n", "my.csv, line 2: stereotype '0' is not one of 1 to 16"),
        ("sentence,stereotype\nA,1.0\n", "my.csv, line 2: stereotype '1.0' is not one of 1 to 16"),
        ("sentence,stereotype\nA,tough\n", "my.csv, line 2: stereotype 'tough' is not one of"),
        ("sentence,stereotype\nA,\n", "my.csv, line 2: stereotype '' is not one of"),
        (
            'sentence,stereotype\n"two\nlines",1\n\n\n ,2\n',
            "my.csv, line 6: the sentence is empty: fill it in or delete the row",
        ),
        ("sentence,stereotype\nA, B,1\n", "my.csv, line 2: 3 fields instead of 2: put double quotes"),
        ("sentence,stereotype\nA\n", "my.csv, line 2: 1 field instead of 2: complete or delete the row"),
        ('sentence,stereotype\nA,1\n"B,1\nC,1\n', "my.csv, line 3: not valid CSV"),
        ("sentence;stereotype\nA;1\n", "my.csv: no column 'sentence' in line 1 (found: 'sentence;stereotype')"),
        ("sentence,group\nA,1\n", "my.csv: no column 'stereotype' in line 1 (found: 'sentence,group')"),
        ("sentence,sentence,stereotype\nA,B,1\n", "my.csv: more than one column 'sentence' in line 1"),
        ("", "my.csv: no column 'sentence' in line 1 (found: '')"),
        ("sentence,stereotype\n\n", "my.csv: no rows below the header"),
        (
            b"sentence,stereotype\nA,1\ncaf\xe9,1\n",
            r"my.csv, line 3: not UTF-8 (bytes e9 in b'type\nA,1\ncaf\xe9,1\n'): save the file as UTF-8, or name its encoding",
        ),
        ("sentence,stereotype\nA,1\n".encode("utf-16-le"), "my.csv, line 1: a byte is 00, as in UTF-16"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_gest(written(tmp_path, content))
    assert f"{tmp_path}/{message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_group_of_a_users_own_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: class 'z' is not one of x, y"):
        read_sentences(written(tmp_path, "text,class\nA,z\n"), "text", "class", ["x", "y"])


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*/none\.csv: give a CSV file"):
        read_gest(tmp_path / "none.csv")


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't read .*directory"):
        read_sentences(tmp_path, "sentence", "stereotype", ["1"])


def test_the_real_files_keep_their_repeated_sentences(data_dir: Path) -> None:
    for name, distinct in (("gest.csv", 3555), ("gest_1.1.csv", 3554)):
        frame = read_gest(data_dir / "gest" / name)
        assert frame.height == 3565
        assert frame["sentence"].n_unique() == distinct
    old, new = (read_gest(data_dir / "gest" / name) for name in ("gest.csv", "gest_1.1.csv"))
    assert (old["sentence"] != new["sentence"]).sum() == 244
