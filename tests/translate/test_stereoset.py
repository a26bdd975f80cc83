"""StereoSet in a new language: BLANK and final marks survive or are reported, and the result is a data set."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tiny_models import tiny_model

from evaluator.cli.translate_dataset import command
from evaluator.datasets.stereoset import LABELS, read
from evaluator.tasks.stereoset import stereoset
from evaluator.translate import seq2seq
from evaluator.translate.seq2seq import Seq2SeqTranslator
from evaluator.translate.stereoset import Field, failures_csv, problem, read_repairs, translate_stereoset
from evaluator.vocabulary import DataSource, Samples
from evaluator_serving.errors import InputError


def example(name: str, context: str, texts: Sequence[str]) -> dict[str, Any]:
    sentences = [
        {"id": f"{name}{i}", "gold_label": label, "sentence": context.replace("BLANK", text) if "BLANK" in context else text}
        for i, (label, text) in enumerate(zip(LABELS, texts, strict=True))
    ]
    return {"id": name, "target": "cook", "bias_type": "profession", "context": context, "sentences": sentences}


INTRA = [
    example("a", "A cook is BLANK.", ("busy", "idle", "wet")),
    example("b", "A cook is BLANK and BLANK!", ("kind", "rude", "blue")),
]
INTER = [example("c", "A cook sings", ("She is loud.", "She is shy.", "Rain falls!"))]


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    folder = tmp_path / "data" / "stereoset"
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text(json.dumps({"data": {"intrasentence": INTRA, "intersentence": INTER}}))
    return read(folder / "dev.json")


class Upper:
    """Translates to capitals, except what `replies` says."""

    def __init__(self, replies: dict[str, str] | None = None) -> None:
        self.replies = replies or {}
        self.asked: list[str] = []

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        self.asked += texts
        return [self.replies.get(text, text.upper()) for text in texts]


def test_a_translation_is_a_data_set(samples: Samples, tmp_path: Path) -> None:
    translated = translate_stereoset(samples, Upper({"cook": "KOCH.", "busy": "EMSIG."}), "de", {})
    assert translated.failures == ()
    path = tmp_path / "dev_de.json"
    path.write_text(json.dumps(translated.data))
    again = read(path)
    assert again.failures == ()
    rows = {row["example"]: row for row in again.frame.iter_rows(named=True)}
    assert rows["a"]["context"] == "A COOK IS BLANK."
    assert rows["a"]["words"] == ["EMSIG", "IDLE", "WET"]  # the full stop that the system added is gone
    assert rows["a"]["sentences"][0] == "A COOK IS EMSIG."
    assert rows["b"]["sentences"][1] == "A COOK IS RUDE AND RUDE!"
    assert rows["c"]["sentences"] == ["SHE IS LOUD.", "SHE IS SHY.", "RAIN FALLS!"]
    assert {row["target"] for row in rows.values()} == {"cook"}
    assert translated.data["data"]["intrasentence"][0]["target"] == "KOCH"
    assert rows["a"]["ids"] == ["a0", "a1", "a2"]


def test_a_lost_blank_is_tried_with_other_placeholders(samples: Samples) -> None:
    upper = Upper({"A cook is BLANK.": "EIN KOCH IST LEER.", "A cook is [BLANK].": "EIN KOCH IST [LEER]."})
    translated = translate_stereoset(samples, upper, "de", {})
    assert translated.failures == ()
    assert translated.data["data"]["intrasentence"][0]["context"] == "A COOK IS BLANK."
    assert "A cook is ____." in upper.asked
    assert "A cook is XXX." not in upper.asked


def test_failures_are_listed_repaired_and_left_out(samples: Samples, tmp_path: Path) -> None:
    replies = {f"A cook is {placeholder}.": "KOCH." for placeholder in ("BLANK", "[BLANK]", "____", "XXX")}
    replies |= {"She is shy.": "SIE IST SCHEU", "rude": " "}
    translated = translate_stereoset(samples, Upper(replies), "de", {})
    assert [(f.field.example, f.field.name, f.reason) for f in translated.failures] == [
        ("a", "context", "BLANK occurs 0 times instead of 1"),
        ("b", "anti-stereotype", "empty translation"),
        ("c", "anti-stereotype", "ends in 'no mark', the source in '.'"),
    ]
    assert translated.examples == 0
    listed = tmp_path / "failures.csv"
    listed.write_text(failures_csv(translated.failures))
    assert "KOCH." in listed.read_text()
    fixed = listed.read_text().replace("KOCH.", "DER KOCH IST BLANK.").replace("SIE IST SCHEU", "SIE IST SCHEU.")
    listed.write_text(fixed)
    repaired = translate_stereoset(samples, Upper(replies), "de", read_repairs(listed))
    assert [f.field.example for f in repaired.failures] == ["b"]
    assert [e["id"] for e in repaired.data["data"]["intrasentence"]] == ["a"]
    with pytest.raises(InputError, match="zz/context"):
        translate_stereoset(samples, Upper(), "de", {("zz", "context"): "x"})


@pytest.mark.parametrize(
    ("source", "translation", "wrong"),
    [
        ("Is it BLANK?", "它是 BLANK 吗？", False),
        ("It is BLANK.", "यह BLANK है।", False),
        ('He said: "BLANK."', "Er sagte: „BLANK.“", False),
        ("It is BLANK", "Es ist BLANK.", True),
        ("It is BLANK.", "Es ist BLANK BLANK.", True),
        ("It is BLANK!", "Es ist BLANK.", True),
    ],
)
def test_marks(source: str, translation: str, wrong: bool) -> None:
    assert (problem(Field("a", "context", source, "intrasentence"), translation) is not None) == wrong


def test_the_command(tmp_path: Path, samples: Samples) -> None:
    texts = {row["context"] for row in samples.frame.iter_rows(named=True)} | {"cook"}
    for row in samples.frame.iter_rows(named=True):
        texts |= set(row["words"] or row["sentences"])
    folder = tmp_path / "mine" / "de"
    folder.mkdir(parents=True)
    pairs = {text: text.upper() for text in texts} | {"She is shy.": "SIE IST SCHEU"}
    with (folder / "translations.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("from", "to"), *pairs.items()])
    out = tmp_path / "out"
    common = ["stereoset", "--to", "de", "--translator", f"folder:{folder.parent}", "--out", str(out)]
    common += ["--cache", str(tmp_path / "cache.jsonl"), "--data", str(tmp_path / "data")]
    done = CliRunner().invoke(command, common, catch_exceptions=False)
    assert "2 examples" in done.stdout
    assert "1 translations to correct" in done.stdout
    listed = out / "stereoset" / "dev_de.failures.csv"
    repairs = tmp_path / "repairs.csv"
    repairs.write_text(listed.read_text().replace("SCHEU", "SCHEU."))
    (folder / "translations.csv").unlink()  # the cache alone can serve
    done = CliRunner().invoke(command, [*common, "--offline", "--repairs", str(repairs)], catch_exceptions=False)
    assert "3 examples" in done.stdout
    loaded = stereoset("de").load(DataSource(out))
    assert loaded.failures == ()
    assert loaded.frame.height == 3
    assert loaded.frame.filter(example="c")["sentences"][0].to_list()[1] == "SIE IST SCHEU."


def test_codes_of_multilingual_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wanted language is forced as the first token where the model has a code for it, and answers depend on it."""
    monkeypatch.setattr(seq2seq, "MAX_TOKENS", 24)
    translator = Seq2SeqTranslator(str(tiny_model("t5", tmp_path / "model", seed=2)))
    tokenizer = translator._tokenizer
    tokenizer.add_tokens(["deu_Latn", "eng_Latn"], special_tokens=True)
    translator._model.resize_token_embeddings(len(tokenizer))
    first, second = translator.translate(["the child", "the nurse is strong"], "de")
    assert (first, second) == tuple(translator.translate([text], "de")[0] for text in ("the child", "the nurse is strong"))
    assert translator._target("de") == ("", {"forced_bos_token_id": tokenizer.get_vocab()["deu_Latn"]})
    assert translator.parameters["revision"].startswith("sha256:")
    with pytest.raises(InputError, match="no code for language 'sk'"):
        translator.translate(["x"], "sk")
