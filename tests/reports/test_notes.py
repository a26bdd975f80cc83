"""What every reader must know is told in the first lines of every format."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from evaluator.cli.report import emit
from evaluator.reports import html, latex, markdown, table
from evaluator.reports.notes import collect_notes, doubts, run_notes
from evaluator.reports.report import Report, build_report
from evaluator.store.run import Run
from evaluator.vocabulary import MeasureOptions

UNVERIFIED = "fast: its engine (onnx) was not compared with transformers (--no-verify)."


def test_old_runs_have_nothing_to_tell() -> None:
    assert run_notes({}) == ()
    assert run_notes({"models": {"m": {"imported": True}, "n": {}}, "tasks": {"gest": {}}}) == ()


def test_models_come_before_tasks_in_their_order() -> None:
    models = {
        "fast": {"engine": "onnx", "verified": False},
        "checked": {"engine": "onnx", "verified": "verified against transformers"},
        "small": {"engine": "onnx", "dtype": "int8", "verified": "max |Δ log P| 0.1"},
    }
    record = {"models": models, "tasks": {"gest": {"failures": [["7", "empty"]]}, "winobias": {"failures": []}}}
    assert run_notes(record) == (
        UNVERIFIED,
        "small: int8 arithmetic is an approximation; max |Δ log P| 0.1.",
        "gest: 1 row of its data skipped: 7: empty.",
    )


def test_what_concerns_whole_models_comes_first_and_details_are_counted() -> None:
    """Three models of which two aren't asked gest, each with a few unknown tokens in three tasks."""
    few = {"tokens": 999, "unknown": 1, "unknown_share": 0.001, "byte_pieces": 0, "byte_pieces_share": 0.0, "alike": 0}
    models = {
        "a": {"text_tokens": {"gest": few}},
        "b": {"text_tokens": {"gest": few}, "unasked": {"gest": "it has no masked head"}},
        "c": {"text_tokens": {"gest": few}, "unasked": {"gest": "it has no masked head"}, "verified": False, "engine": "onnx"},
    }
    found = collect_notes({"models": models})
    assert found.main == (
        "b; c: gest was skipped: it has no masked head.",
        "c: its engine (onnx) was not compared with transformers (--no-verify).",
    )
    token = "of the 999 text tokens of gest, 1 are unknown to its tokenizer (0.1%)."
    assert found.lines == (*found.main, f"3 notes on text tokens unknown to the tokenizer; the first: a: {token}")
    assert run_notes({"models": models}) == (*found.main, f"a: {token}", f"b: {token}", f"c: {token}")


def test_a_sweeps_first_warnings_name_all_models_at_once() -> None:
    """Of those with one tokenizer."""
    many = {"tokens": 200, "unknown": 0, "unknown_share": 0.0, "byte_pieces": 50, "byte_pieces_share": 0.25, "alike": 0}
    models = {f"m{i}": {"text_tokens": {"gest": many}} for i in range(6)}
    assert doubts({"models": models, "tasks": {"gest": {}}}, ["gest"], list(models)) == (
        "m0; m1; m2; m3 and 2 more: of the 200 text tokens of gest, 50 are bytes of characters without a token (25%), "
        "so its scores there are unreliable.",
    )


def test_a_page_shows_first_what_concerns_whole_models(small: Report) -> None:
    few = {"tokens": 999, "unknown": 1, "unknown_share": 0.001, "byte_pieces": 0, "byte_pieces_share": 0.0, "alike": 0}
    entries = {f"m{i}": {"text_tokens": {"gest": few}} for i in range(9)}
    entries["m9"] = {"unasked": {"gest": "it has no masked head"}}
    page = html.render(replace(small, record={**small.record, "models": entries}))
    first, folded = page.index("m9: gest was skipped: it has no masked head"), page.index("9 notes on text tokens")
    assert first < folded
    assert "<details" not in page[page.index("<header>") : first]
    assert page.index("m8: of the 999 text tokens") > folded


def test_models_of_different_dtypes_are_told() -> None:
    fp8 = {"engine": "vllm", "dtype": "bfloat16", "details": {"quantization": "fp8"}}
    models = {
        "a": {"engine": "onnx", "dtype": "float32", "details": {"quantization": None}},
        "b": {"engine": "vllm", "dtype": "bfloat16"},
        "c": {"engine": "onnx", "dtype": "float32"},
        "d": fp8,
        "server": {"engine": "openai", "dtype": "served"},
        "old": {"imported": True},
    }
    assert run_notes({"models": models}) == (
        "models differ in dtype; compare them with care: float32: a, c; bfloat16: b; bfloat16 with weights in fp8: d.",
        "d: its weights were quantized to fp8 when they were loaded, an approximation.",
    )
    assert run_notes({"models": {name: models[name] for name in ("a", "c", "server", "old")}}) == ()


def test_an_adapter_is_told_with_what_it_was_merged_into() -> None:
    adapter = {"kind": "LORA", "base": "org/base", "base_revision": "0123456789abcdef", "revision": "sha256:" + "f" * 64}
    beside = {**adapter, "base": "./tuned"}
    models = {"a": {"spec": "org/lora", "adapter": adapter}, "b": {"spec": "./tuned", "adapter": beside}}
    assert run_notes({"models": models}) == (
        "a: a LORA adapter (ffffffffffff) was merged into org/base (0123456789ab).",
        "b: a LORA adapter (ffffffffffff) was merged into the weights beside it (0123456789ab).",
    )


@pytest.mark.parametrize("difference", [None, 0.0])
def test_padding_whose_effect_was_not_seen(difference: float | None) -> None:
    """Of models that choose among earlier tokens; 0 is in runs from before it was left out."""
    details = {"padding": {"causal": {"mates": "equal", "difference": difference}}}
    assert run_notes({"models": {"a": {"engine": "transformers", "engine_details": details}}}) == (
        "a: its causal output can depend on padding, so only rows of equal length were computed together.",
    )


def test_tasks_that_are_not_shown_are_not_told(small: Report) -> None:
    other = {"failures": [["1", "wrong"]]}
    record = {**small.record, "tasks": {**small.record["tasks"], "winobias": other}}
    assert not any("winobias" in note for note in replace(small, record=record).notes)


def _table(report: Report) -> str:
    return "\n".join(line.plain for line in table.render(report, 200))


@pytest.mark.parametrize(
    ("render", "first"),
    [(_table, "template"), (markdown.render, "| --- |"), (latex.render, "tabular}{"), (html.render, "<td")],
)
def test_notes_stand_before_the_first_table(small: Report, render: Any, first: str) -> None:
    record = {**small.record, "models": {"fast": {"engine": "onnx", "verified": False}}}
    said = render(replace(small, record=record))
    plain = said.replace("\\-", "-")
    assert 0 < plain.index(UNVERIFIED) < plain.index(first)


@pytest.mark.parametrize("format_", ["csv", "json", "latex"])
def test_notes_go_to_stderr_beside_rows(tmp_path: Path, format_: str) -> None:
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    made.extend(models={"fast": {"engine": "onnx", "verified": False}})

    @click.command()
    def command() -> None:
        emit(build_report(made, MeasureOptions()), format_)

    result = CliRunner().invoke(command)
    assert f"note: {UNVERIFIED}" in result.stderr
    assert format_ == "latex" or UNVERIFIED not in result.stdout
