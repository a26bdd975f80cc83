"""What a tokenizer doesn't know of a task's texts, and mixed normal forms: in run.json, on stderr and in the reports."""

import unicodedata
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tiny_models import tiny_model

from evaluator.datasets.normal_forms import normal_forms
from evaluator.reports.notes import run_notes
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from tests.own_tasks import custom

KNOWN = ["I am happy", "I cry"]
UNKNOWN = ["ж", "жж", "щ"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("bert", tmp_path_factory.mktemp("model") / "bert")


def scored(folder: Path, model: Path, sentences: list[str]) -> tuple[dict[str, Any], list[str], str]:
    """run.json, the warnings and the task's name of a run over some sentences; run twice into one folder, they stay."""
    csv = folder / "own.csv"
    csv.write_text("sentence,stereotype\n" + "".join(f"{s},{i + 1}\n" for i, s in enumerate(sentences)), encoding="utf8")
    task = custom(csv)
    spec = RunSpec((ModelSpec(str(model), engine="transformers"),), (task,), folder / "run")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = execute(spec).run.record
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning) and task.name in str(w.message)]
    again = execute(spec).run.record
    assert again["models"]["bert"]["text_tokens"] == record["models"]["bert"]["text_tokens"]
    return record, told, task.name


def test_sentences_of_unknown_tokens_are_counted_and_told(tmp_path: Path, bert: Path) -> None:
    record, told, task = scored(tmp_path, bert, [*UNKNOWN, *KNOWN])
    # He said : " s " · The man said : " s " · " s " , he said . · " s " , the man said .: 24 tokens and four sentences s,
    # three of them [UNK], one of three tokens and one of two.
    tokens = 5 * 24 + 4 * (3 + 3 + 2)
    assert record["models"]["bert"]["text_tokens"] == {
        task: {
            **{"tokens": tokens, "unknown": 12, "unknown_share": 12 / tokens, "byte_pieces": 0, "byte_pieces_share": 0.0},
            **{"requests": 20, "incomplete": 12, "alike": 12},
        }
    }
    said = (
        f"bert: of the {tokens} text tokens of {task}, 12 are unknown to its tokenizer (7.89%); "
        "12 requests have the same token ids as another one, so its scores there are unreliable."
    )
    assert told == [said]
    assert run_notes(record) == (said,)


def test_what_is_known_is_counted_and_not_told(tmp_path: Path, bert: Path) -> None:
    record, told, task = scored(tmp_path, bert, KNOWN)
    assert record["models"]["bert"]["text_tokens"][task]["unknown"] == 0
    assert told == []
    assert run_notes(record) == ()


def test_a_few_unknown_tokens_are_told_in_reports_only() -> None:
    counts = {"tokens": 1000, "unknown": 4, "unknown_share": 0.004, "byte_pieces": 3, "byte_pieces_share": 0.003, "alike": 0}
    assert run_notes({"models": {"m": {"text_tokens": {"gest": counts}}}}) == (
        "m: of the 1,000 text tokens of gest, 4 are unknown to its tokenizer (0.4%) and 3 are bytes of characters without "
        "a token (0.3%).",
    )


def test_normal_forms_are_counted_by_row_over_all_texts() -> None:
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    frame = pl.DataFrame(
        {
            "sample": [0, 1, 2, 3, 4],
            "text": ["cafe", composed, decomposed, "a", None],
            "words": [["b"], [composed], [composed], ["a", decomposed], None],
        },
        schema={"sample": pl.Int64, "text": pl.String, "words": pl.List(pl.String)},
    )
    assert normal_forms(frame) == {"nfc": 1, "other": 2}
    assert normal_forms(frame.select("sample")) == {"nfc": 0, "other": 0}


@pytest.mark.parametrize(
    ("forms", "said"),
    [
        (("NFC", "NFC"), None),
        (("NFC", "NFD"), "1 are not in Unicode's normal form NFC (an é is two characters) and 1 are"),
        (("NFD", "NFD"), "all samples with letters beyond ASCII (2) are not in Unicode's normal form NFC"),
    ],
)
def test_normal_forms_of_a_file_are_told(tmp_path: Path, bert: Path, forms: tuple[str, str], said: str | None) -> None:
    sentences = [unicodedata.normalize(form, text) for form, text in zip(forms, ("I am né", "I am allé"), strict=True)]
    record, told, task = scored(tmp_path, bert, sentences)
    notes = [note for note in run_notes(record) if note.startswith(task)]
    assert [note for note in told if note.startswith(task)] == notes
    assert len(notes) == (said is not None)
    assert all(said in note for note in notes if said)
    assert record["tasks"][task]["samples"] == 2
