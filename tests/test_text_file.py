"""Files in any encoding: those of Unicode are recognised, the others are read where they are named and refused where not.
Expected texts are what was encoded."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

import evaluator
from evaluator.cli.gender import command as gender
from evaluator.cli.scores import command as scores
from evaluator.datasets.word_filling import read_word_counts
from evaluator.gender.ud.conllu import read_conllu
from evaluator.nsp.corpus import articles
from evaluator.reports.facts import model_facts
from evaluator.scoring.spec import Condition
from evaluator.sweep.config import read_sweep
from evaluator.tasks import chosen_tasks
from evaluator.text_file import opened, read_text
from evaluator.translate.folder import read_translations
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError

CZECH = "sent_more,sent_less\nMoje žena vaří.,Můj muž vaří.\nStařec čte.,Mladík čte.\n"
UNICODE = {"utf-8": CZECH.encode(), "utf-8-sig": CZECH.encode("utf-8-sig"), "utf-16": CZECH.encode("utf-16")}
UNICODE["utf-16-be with a mark"] = b"\xfe\xff" + CZECH.encode("utf-16-be")


def both(path: Path, encoding: str | None = None) -> str:
    """The text, read at once and piece by piece alike."""
    text, _ = read_text(path, wanted="give it", encoding=encoding)
    with opened(path, wanted="give it", encoding=encoding) as file:
        assert "".join(file) == text
    return text


@pytest.mark.parametrize("content", UNICODE.values(), ids=UNICODE)
def test_encodings_of_unicode_are_recognised(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    assert both(file) == CZECH


@pytest.mark.parametrize(
    ("encoding", "bom"),
    [
        ("cp1250", b""),
        ("windows-1250", b""),
        ("iso8859-2", b""),
        ("utf-16-le", b""),
        ("UTF-16LE", b"\xff\xfe"),
        ("utf-32", b""),
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
    ],
)
def test_any_other_is_read_where_it_is_named(tmp_path: Path, encoding: str, bom: bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(bom + CZECH.encode(encoding))
    assert both(file, encoding) == CZECH


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (
            CZECH.encode("cp1250"),
            None,
            r"a\.csv, line 2: not UTF-8 \(bytes 9e in b'.*Moje .x9eena va.*'\): save",
        ),
        (CZECH.encode() + b"\r\nd\xe9j\xe0\r\n", None, r"line 5: not UTF-8 \(bytes e9 in "),
        (b"a\rb\r\xff", None, "line 3: not UTF-8"),
        (
            CZECH.encode("utf-8-sig"),
            "cp1250",
            "begins with the byte-order mark of UTF-8, so it is not cp1250: remove the encoding option",
        ),
        (CZECH.encode("utf-16"), "utf-8", "begins with the byte-order mark of UTF-16, so it is not utf-8"),
        (CZECH.encode("utf-16-le"), "utf-16", "has no byte-order mark: write --encoding utf-16-le or utf-16-be instead"),
        (CZECH.encode("cp1250") + b"\x81", "cp1250", r"line 4: not cp1250 \(bytes 81"),
        (CZECH.encode("utf-16")[:-1], None, "line 3: not UTF-16"),
        (CZECH.encode(), "hex", "'hex' is not the name of a text encoding: use for example cp1250"),
        (CZECH.encode(), "cp12500", "'cp12500' is not the name"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_bytes(tmp_path: Path, content: bytes, encoding: str | None, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(InputError, match=message) as said:
            read_text(file, wanted="give it", encoding=encoding)
        assert "\n" not in str(said.value)
    with pytest.raises(InputError, match=message), opened(file, wanted="give it", encoding=encoding) as lines:
        list(lines)


def wrong_bytes(text: str) -> dict[str, bytes]:
    return {"cp1250": text.encode("cp1250"), "utf-16 without a mark": text.encode("utf-16-le"), "utf-32": text.encode("utf-32")}


def pairs(path: Path) -> object:
    return chosen_tasks(("pairs",), samples=path)[0].load(DataSource())


def sentences(path: Path) -> object:
    return chosen_tasks(("gest",), samples=path)[0].load(DataSource())


READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pairs": (pairs, CZECH),
    "samples": (sentences, "sentence,stereotype\nVařím.,1\nČtu žalm.,2\n"),
    "templates": (lambda path: chosen_tasks(("gest",), templates=path), 'name = "žena"\n'),
    "wording": (lambda path: chosen_tasks(("gest-who",), wording=path), 'prompt = "žena"\n'),
    "sweep": (lambda path: read_sweep(path), 'tasks = ["žena"]\n'),
    "translations": (read_translations, "from,to\nShe,žena\n"),
    "models": (lambda path: model_facts({"žena": {}}, path), "model,family\nžena,x\n"),
    "words": (read_word_counts, "žena 5\n"),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_guesses(tmp_path: Path, reader: str) -> None:
    read, text = READERS[reader]
    file = tmp_path / "file.x"
    for content in wrong_bytes(text).values():
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"file\.x, line \d: .*not UTF-(8|16).*: save the file as UTF-8"):
            read(file)


def test_other_texts_in_another_encoding_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("Byla jsem doma.\nMoje žena.\n".encode("cp1250"))
    readers: list[Callable[[], object]] = [
        lambda: Condition.read(f"own={file}"),
        lambda: list(articles([file])),
        lambda: list(read_conllu(file)),
    ]
    for read in readers:
        with pytest.raises(InputError, match=r"a\.txt, line [12]: not UTF-8 \(bytes 9e|CoNLL-U"):
            read()
    for given in ([str(file)], []):
        said = CliRunner().invoke(gender, ["--language", "cs", *given], input=file.read_bytes())
        assert isinstance(said.exception, InputError)
        assert "line 2: not UTF-8" in str(said.exception)
    file.write_text("Buď milý.", "utf-8-sig")
    assert Condition.read(f"own={file}").system == "Buď milý."


def test_a_run_on_pairs_in_windows_1250(tmp_path: Path) -> None:
    """Named, they score as the same pairs in UTF-8 do; what was read is in run.json and in the notes, and read so again."""
    model = str(tiny_model("gpt2", tmp_path / "model"))
    found = {}
    for name, encoding in (("utf-8", None), ("cp1250", "cp1250")):
        file = tmp_path / f"{name}.csv"
        file.write_bytes(CZECH.encode(name))
        run = evaluator.run("pairs", model, out=tmp_path / name, samples=file, encoding=encoding, engine="transformers")
        found[name] = run.scores()["score"].to_list()
        (entry,) = json.loads((tmp_path / name / "run.json").read_text())["tasks"].values()
        assert entry["facts"]["read_as"] == {f"{name}.csv": {"encoding": encoding or "UTF-8", "delimiter": ","}}
        told = [note for note in run.notes if "was read as" in note]
        assert [re.sub(r"pairs-\w+: ", "", note) for note in told] == [
            f"{name}.csv was read as cp1250 with commas between its fields."
        ][: encoding is not None]
        said = CliRunner().invoke(scores, [str(tmp_path / name), "--text", "--samples", str(file), "--format", "json"])
        assert pl.read_json(said.stdout.encode())["text"].to_list()[0] == "Moje žena vaří. / Můj muž vaří."
    assert found["cp1250"] == pytest.approx(found["utf-8"], abs=1e-6)
    with pytest.raises(InputError, match=r"was made with another encoding for cp1250\.csv of task pairs-"):
        evaluator.run("pairs", model, out=tmp_path / "cp1250", samples=file, encoding="cp1252", engine="transformers")


def test_an_encoding_is_of_a_file_of_the_users_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="encoding requires samples or translations"):
        chosen_tasks(("gest",), encoding="cp1250")
    file = tmp_path / "s.csv"
    file.write_bytes("sentence,stereotype\nVařím.,1\nPíšu žalm.,2\n".encode("cp1250"))
    task = chosen_tasks(("gest",), samples=file, encoding="cp1250")[0]
    for limit in (None, 2):
        loaded = task.load_limited(DataSource(), limit)
        assert loaded.frame.sort("sample")["sentence"].to_list() == ["Vařím.", "Píšu žalm."]
        assert loaded.facts["read_as"]["s.csv"]["encoding"] == "cp1250"
    folder = tmp_path / "system" / "cs"
    folder.mkdir(parents=True)
    (folder / "translations.csv").write_bytes("from,to\nI cook.,Vařila jsem žížaly.\n".encode("cp1250"))
    (made,) = chosen_tasks(("gest-mt",), translations=tmp_path / "system", encoding="cp1250")
    (given,) = made.given(chosen_tasks(("gest-demo",))[0].load(DataSource()))
    assert given.answers["text"].to_list() == ["Vařila jsem žížaly."]
    assert given.source["encoding"] == "cp1250"
