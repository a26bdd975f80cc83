"""Masculine rates of translations: hand-computed cases, wrong files, the published tables through the whole program."""

import csv
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from evaluator.cli.run import command as run_command
from evaluator.datasets.gest import STEREOTYPES, read_sentences
from evaluator.reports.report import build_report
from evaluator.scoring.driver import Outcome
from evaluator.scoring.existing_answers import score_given
from evaluator.scoring.spec import RunSpec
from evaluator.store import files
from evaluator.store import run as store
from evaluator.store.run import Run
from evaluator.tasks import chosen_tasks, task
from evaluator.tasks.gest_mt import find_translations
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import TIDY, DataSource, MeasureOptions
from evaluator_serving.errors import InputError
from tests.made_up_runs import write_gest

measured = task("gest-mt").measure

SENTENCES = [("I was sad.", 1), ("I was kind.", 2), ("I was strong.", 8), ("I was a boss.", 13)]


def scores(values: list[tuple[str, float | None]]) -> pl.DataFrame:
    """(group, score) of one system and language."""
    return pl.DataFrame(
        {
            "model": "s",
            "task": "gest-mt",
            "language": "sk",
            "template": None,
            "sample": range(len(values)),
            "group": [group for group, _ in values],
            "score": [score for _, score in values],
            "conflict": [i == 0 for i in range(len(values))],
            "polarity": ["female" if int(group) < 8 else "male" for group, _ in values],
            "family": [group == "8" for group, _ in values],
        },
        schema_overrides={"template": pl.String, "score": pl.Float64},
    )


def values(rows: pl.DataFrame, measure: str) -> dict[str | None, tuple[float, int]]:
    return {r["group"]: (r["value"], r["n"]) for r in rows.filter(measure=measure).iter_rows(named=True)}


def test_hand_computed_rates() -> None:
    """p_1 = 1/2, p_2 = 0/1 (one unknown), p_8 = 3/4: p_f = 1/4, p_m = 3/4."""
    frame = scores([("1", 1), ("1", 0), ("2", 0), ("2", None), ("8", 1), ("8", 1), ("8", 1), ("8", 0)])
    rows = measured(frame, MeasureOptions())
    assert dict(rows.schema) == TIDY
    assert values(rows, "p") == {"1": (0.5, 2), "2": (0.0, 1), "8": (0.75, 4)}
    assert values(rows, "p_family") == {None: (0.75, 4)}
    assert values(rows, "f_s")[None][0] == pytest.approx(0.5)
    assert values(rows, "f_m")[None][0] == pytest.approx(0.5)
    assert values(rows, "yield") == {None: (7.0, 8)}
    assert values(rows, "conflicts") == {None: (1.0, 8)}


@pytest.mark.parametrize(
    ("interval", "value", "half", "kind"),
    [("percentile", 0.75, 0.326885, "Wilson"), ("published", 0.627527, 0.338390, "Agresti-Coull")],
)
def test_shares_by_hand(interval: Any, value: float, half: float, kind: str) -> None:
    """3 of 4, z = 1.959964: ñ = 7.841459, p̃ = 4.920729/7.841459 = 0.627527; half widths z·√(p̃(1 − p̃)/ñ), z/ñ·√(3/4 + z²/4)."""
    frame = scores([("8", 1), ("8", 1), ("8", 1), ("8", 0)])
    row = measured(frame, MeasureOptions(interval=interval)).filter(measure="p").row(0, named=True)
    assert row["value"] == pytest.approx(value, abs=1e-5)
    assert (row["low"], row["high"]) == pytest.approx((0.627527 - half, 0.627527 + half), abs=1e-4)
    assert row["interval"] == kind


def test_sure_shares_stay_within_their_range_and_say_how_they_were_made() -> None:
    """Only masculine in stereotype 8, only feminine in 1: three of three end at 1, none of three begins at 0."""
    frame = scores([("1", 0)] * 3 + [("8", 1)] * 3)
    rows = measured(frame, MeasureOptions())
    assert rows.filter(measure="p").select("low", "high").rows() == [(0, pytest.approx(0.561497)), (pytest.approx(0.438503), 1)]
    kinds = dict(rows.select("measure", "interval").unique().iter_rows())
    assert kinds == {"p": "Wilson", "p_family": "Wilson"} | dict.fromkeys(("f_s", "f_m"), "percentile bootstrap") | {
        "yield": None,
        "conflicts": None,
    }
    published = measured(frame, MeasureOptions(interval="published")).filter(measure="p")
    assert published["high"].max() > 1  # as printed


def test_all_unknown_is_no_rate() -> None:
    rows = measured(scores([("1", None), ("8", None)]), MeasureOptions())
    assert values(rows, "p") == {"1": (None, 0), "8": (None, 0)}
    assert rows.filter(measure="p").select("low", "high", "interval").unique().rows() == [(None, None, None)]
    assert rows.filter(measure="f_s").is_empty()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_gest(tmp_path / "data", SENTENCES)


def write(folder: Path, system: str, language: str, rows: list[tuple[str, str]]) -> Path:
    path = folder / system / language / "translations.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("from", "to"), *rows])
    return path


def run_translations(spec: RunSpec, folder: Path, languages: Sequence[str]) -> Outcome:
    """The task with the translations of a folder, run into `spec.out`."""
    return score_given(replace(spec, tasks=(*chosen_tasks(("gest-mt",), translations=folder, languages=languages),)))


SLOVAK = ["Bola som smutná.", "Bol som milý.", "Bol som silný.", "Idem domov."]


def test_the_program_from_files_to_rates(data: Path, tmp_path: Path) -> None:
    write(tmp_path / "t", "sys", "sk", [(s, t) for (s, _), t in zip(SENTENCES, SLOVAK, strict=True)])
    outcome = run_translations(RunSpec((), (), tmp_path / "run", data=DataSource(data)), tmp_path / "t", ())
    run = Run.open(tmp_path / "run")
    assert outcome.errors == {}
    assert run.failures().is_empty()
    scored = scores_of(run, "gest-mt")
    assert scored.select("model", "language", "group", "score").rows() == [
        ("sys", "sk", "1", 0.0),
        ("sys", "sk", "2", 1.0),
        ("sys", "sk", "8", 1.0),
        ("sys", "sk", "13", None),
    ]
    rows = task("gest-mt").measure(scored, MeasureOptions())
    assert values(rows, "yield") == {None: (3.0, 4)}


@pytest.mark.parametrize("lacking", [True, False])
def test_missing_and_empty_translations_are_counted_and_named(data: Path, tmp_path: Path, lacking: bool) -> None:
    """One that isn't in the file may come yet. An empty one is the system's answer: told with every number, no failure."""
    rows = [(SENTENCES[0][0], SLOVAK[0]), (SENTENCES[1][0], " "), (SENTENCES[2][0], SLOVAK[2]), (SENTENCES[3][0], SLOVAK[3])]
    write(tmp_path / "t", "sys", "sk", rows[:-1] if lacking else rows)
    arguments = ["gest-mt", "--translations", str(tmp_path / "t"), "--data", str(data), "--out", str(tmp_path / "run")]
    for _ in range(2):
        done = CliRunner().invoke(run_command, arguments, env={"COLUMNS": "200"})
        assert done.exit_code == lacking
        assert ("to try again" in done.stderr) == lacking
        told = "sys: sk: no translation (refused, or an empty answer), gender unknown: 1 of 4 samples (sample 1)"
        assert f"evaluator: {told}\n" in done.stderr
        run = Run.open(tmp_path / "run")
        missing = ["sk: no translation in its file: 1 of 4 samples (sample 3)"]
        assert run.failures()["reason"].to_list() == missing[: int(lacking)]
        assert f"{told}." in build_report(run, MeasureOptions(resamples=5)).notes
        assert scores_of(run, "gest-mt").filter(sample=1)["score"].to_list() == [None]


CZECH = ["Byla jsem smutná.", "Byl jsem milý.", "Byla jsem silná.", "Byla jsem šéfová."]


def both(folder: Path) -> Path:
    """Slovak without its last translation, Czech with all."""
    write(folder, "sys", "sk", [(s, t) for (s, _), t in zip(SENTENCES[:3], SLOVAK, strict=False)])
    write(folder, "sys", "cs", [(s, t) for (s, _), t in zip(SENTENCES, CZECH, strict=True)])
    return folder


def tables(run: Path) -> str:
    """What a reader gets: the rows and the warnings of the report, and the failures."""
    opened = Run.open(run)
    report = build_report(opened, MeasureOptions(resamples=50))
    return report.rows.write_csv() + "\n".join(report.warnings) + opened.failures().write_csv()


def test_languages_given_one_after_the_other_are_one_run(data: Path, tmp_path: Path) -> None:
    folder = both(tmp_path / "t")
    whole, grown = (RunSpec((), (), tmp_path / name, data=DataSource(data)) for name in ("whole", "grown"))
    run_translations(whole, folder, ())
    for language in ("sk", "cs", "sk"):
        run_translations(replace(grown, command=("evaluator", language)), folder, [language])
    assert tables(grown.out) == tables(whole.out)
    assert {"sk", "cs"} == set(scores_of(Run.open(grown.out), "gest-mt")["language"])
    digests = {
        code: hashlib.sha256((folder / "sys" / code / "translations.csv").read_bytes()).hexdigest() for code in ("sk", "cs")
    }
    recorded = Run.open(grown.out).record["models"]["sys"]["revision"]
    assert {language: source["sha256"] for language, source in recorded.items()} == digests
    assert [attempt["command"][1] for attempt in Run.open(grown.out).record["attempts"]][:2] == ["sk", "cs"]


def test_a_corrected_file_replaces_its_language_and_failures(data: Path, tmp_path: Path) -> None:
    folder = both(tmp_path / "t")
    spec = RunSpec((), (), tmp_path / "run", data=DataSource(data))
    run_translations(spec, folder, ())
    czech = scores_of(Run.open(spec.out), "gest-mt").filter(language="cs")
    path = folder / "sys" / "sk" / "translations.csv"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(path.read_text() + f"{SENTENCES[3][0]},Bol som šéf.\n")
    after = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.warns(UserWarning, match=f"sys, sk is replaced because .*sha256 {before[:12]}, now {after[:12]}"):
        run_translations(spec, folder, ["sk"])
    run = Run.open(spec.out)
    assert run.failures().is_empty()
    assert scores_of(run, "gest-mt").filter(language="sk")["score"].to_list() == [0.0, 1.0, 1.0, 1.0]
    assert scores_of(run, "gest-mt").filter(language="cs").equals(czech)
    assert run.record["models"]["sys"]["revision"]["sk"]["sha256"] == after
    assert len(list(run.path.glob("imported/gest-mt/*"))) == 2, "what was replaced is gone"


def test_killed_between_any_two_writes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written before the kill, scores, hash and failures fit together, and the same command finishes."""
    folder = both(tmp_path / "t")
    whole = RunSpec((), (), tmp_path / "whole", data=DataSource(data))
    run_translations(whole, folder, ())
    write_whole = files.write_bytes
    for moment in range(20):
        spec = RunSpec((), (), tmp_path / f"run-{moment}", data=DataSource(data))
        left = itertools.count(moment, -1)

        def killed(path: Path, content: bytes, left: Iterator[int] = left) -> None:
            if next(left) == 0:
                raise KeyboardInterrupt
            write_whole(path, content)

        for module in (files, store):
            monkeypatch.setattr(module, "write_bytes", killed)
        finished = True
        try:
            run_translations(spec, folder, ())
        except KeyboardInterrupt:
            finished = False
        for module in (files, store):
            monkeypatch.setattr(module, "write_bytes", write_whole)
        if spec.out.exists() and not finished:
            run = Run.open(spec.out)
            recorded = run.record["models"].get("sys", {}).get("revision", {})
            there = set(scores_of(run, "gest-mt")["language"]) if run.tasks else set()
            assert there == set(recorded)
            assert run.failures().height == ("sk" in there)
        run_translations(spec, folder, ())
        assert tables(spec.out) == tables(whole.out)
        if finished:
            break
    assert finished
    assert moment > 5


def test_a_run_of_an_older_version_is_extended(data: Path, tmp_path: Path) -> None:
    """One file for all languages, hashes under one key, failures among all others: as versions before the parts wrote it."""
    folder = both(tmp_path / "t")
    spec = RunSpec((), (), tmp_path / "run", data=DataSource(data))
    run_translations(spec, folder, ())
    run = Run.open(spec.out)
    rows, failures, shown = scores_of(run, "gest-mt"), run.failures(), tables(spec.out)
    record = run.record
    entry = record["models"]["sys"]
    del entry["parts"]
    entry["revision"] = {"sha256": {code: s["sha256"] for code, s in entry["revision"].items()}, "detector": "rules"}
    files.write_json(spec.out / "run.json", record)
    for path in spec.out.glob("imported/gest-mt/*"):
        path.unlink()
    files.write_parquet(spec.out / "imported" / "gest-mt" / "part-sys.parquet", rows.drop("task"))
    run.add_failures(failures.drop("kind").rows())
    assert tables(spec.out) == shown
    path = folder / "sys" / "sk" / "translations.csv"
    path.write_text(path.read_text() + f"{SENTENCES[3][0]},Bol som šéf.\n")
    with pytest.warns(UserWarning, match="sys, sk is replaced"):
        run_translations(spec, folder, ["sk"])
    run_translations(RunSpec((), (), tmp_path / "whole", data=DataSource(data)), folder, ())
    assert tables(spec.out) == tables(tmp_path / "whole")
    assert run.record["models"]["sys"]["revision"] == Run.open(tmp_path / "whole").record["models"]["sys"]["revision"]


@pytest.mark.parametrize(
    ("language", "rows", "message"),
    [
        ("sk", [("I was sad.", "Bola som."), ("I was sad.", "Bol som.")], "line 3: a second translation of 'I was sad.'"),
        ("xx", [("I was sad.", "a")], "no gender rules for language 'xx'"),
    ],
)
def test_wrong_files(data: Path, tmp_path: Path, language: str, rows: list[tuple[str, str]], message: str) -> None:
    write(tmp_path / "t", "sys", language, rows)
    with pytest.raises(InputError, match=message):
        run_translations(RunSpec((), (), tmp_path / "run", data=DataSource(data)), tmp_path / "t", ())
    assert not (tmp_path / "run").exists()


def test_a_limit_is_refused(data: Path, tmp_path: Path) -> None:
    spec = RunSpec((), (), tmp_path / "run", data=DataSource(data), limit=8)
    with pytest.raises(InputError, match="remove --limit"):
        run_translations(spec, both(tmp_path / "t"), ())
    assert not spec.out.exists()


def test_no_translations(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gest-mt: translations: .* has no translations"):
        chosen_tasks(["gest-mt"], translations=tmp_path)
    write(tmp_path, "sys", "sk", [])
    with pytest.raises(InputError, match="has no translations for cs"):
        find_translations(tmp_path, ["cs"])


def test_models_are_not_asked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--translations"):
        run_command.main(["gest-mt", "--out", str(tmp_path / "run")], standalone_mode=False)


def test_published_tables_through_the_program(data_dir: Path, tmp_path: Path) -> None:
    """Czech of DeepL and Google: centres within 0.010 on average, yields within 3% (all languages: tests/gender)."""
    published = json.loads((data_dir / "gest" / "published_mt.json").read_text())
    spec = RunSpec((), (), tmp_path / "run", data=DataSource(data_dir))
    run_translations(spec, data_dir / "gest" / "translations", ["cs"])
    assert len(read_sentences(data_dir / "gest" / "gest.csv", "sentence", "stereotype", STEREOTYPES)) == 3565
    rows = task("gest-mt").measure(scores_of(Run.open(tmp_path / "run"), "gest-mt"), MeasureOptions(interval="published"))
    for system in ("deepl", "google_translate"):
        own = rows.filter(model=system)
        cells = published[system]["cs"]["p"]
        centres = [values(own, "p")[str(i)][0] for i in range(1, 17)]
        assert sum(abs(a - b[1]) for a, b in zip(centres, cells, strict=True)) / 16 <= 0.010
        assert values(own, "yield")[None][0] == pytest.approx(published[system]["cs"]["yield"], rel=0.03)
