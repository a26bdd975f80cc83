"""Results as other programs read them: each format by its own reader, its numbers against `Results.rates`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from click.testing import CliRunner
from huggingface_hub import parse_eval_result_entries

import evaluator
from evaluator.cli import cli
from evaluator.measures.intervals import Z95

Validator = Callable[..., str]


def export(run: Path, out: Path, *options: str) -> list[Path]:
    done = CliRunner().invoke(cli, ["export-results", str(run), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return sorted(path for path in out.rglob("*") if path.is_file())


@pytest.fixture
def rates(run: Path) -> pl.DataFrame:
    with pytest.warns(UserWarning, match="only 32"):
        rows = evaluator.open(run).rates()
    return rows.filter(pl.col("other").is_null(), pl.col("model") != "all")


def whole(rates: pl.DataFrame, **place: str) -> dict[str, Any]:
    """The row over all groups of a place."""
    groups = pl.col("group").is_null() | (pl.col("group") == "all")
    return rates.filter(groups, **place).row(0, named=True)


@pytest.mark.parametrize("options", [(), ("--instances",)])
def test_every_eval_ever(options: tuple[str, ...], run: Path, translated: Path, tmp_path: Path, validator: Validator) -> None:
    files = [path for source in (run, translated) for path in export(source, tmp_path, "--format", "every-eval-ever", *options)]
    said = validator("-m", "every_eval_ever.validator.validate", "--format", "json", *dict.fromkeys(files))
    reports = json.loads(said)
    assert [report for report in reports if not report["valid"] or report["warnings"]] == []
    # gest-who has no score of any sentence, so no file of them.
    assert {report["file_type"] for report in reports} == ({"aggregate", "instance"} if options else {"aggregate"})
    assert len(reports) == 6 + 4 + (5 + 4 if options else 0)


def test_every_eval_evers_numbers(run: Path, rates: pl.DataFrame, tmp_path: Path) -> None:
    documents = [json.loads(path.read_text()) for path in export(run, tmp_path, "--format", "every-eval-ever")]
    assert sum(len(document["evaluation_results"]) for document in documents) == rates.drop_nulls("value").height
    (gest,) = (d for d in documents if d["model_info"]["name"] == "two" and d["evaluation_id"].startswith("gest/"))
    (main,) = (rate for rate in gest["evaluation_results"] if rate["evaluation_result_id"] == "g_s/en/all")
    row = whole(rates, model="two", task="gest", measure="g_s", template="all")
    assert main["score_details"]["score"] == row["value"]
    interval = main["score_details"]["uncertainty"]["confidence_interval"]
    assert (interval["lower"], interval["upper"], interval["method"]) == (row["low"], row["high"], "percentile bootstrap")
    data = main["source_data"]["additional_details"]
    assert json.loads(data["sha256"]) == evaluator.open(run).record["tasks"]["gest"]["sha256"]
    assert (data["samples"], data["samples_scored"]) == ("3565", "32")
    model = gest["model_info"]["additional_details"]
    assert (model["engine"], model["dtype"]) == ("transformers", "float32")
    assert model["revision"] == evaluator.open(run).record["models"]["two"]["revision"]
    (who,) = (d for d in documents if d["evaluation_id"].startswith("gest-who"))
    assert "stereotype_rate" in who["source_metadata"]["additional_details"]["not_defined"]
    generation = who["evaluation_results"][0]["generation_config"]["generation_args"]
    assert (generation["temperature"], generation["max_tokens"]) == (0.0, 2)


def test_samples_without_an_answer_are_not_counted(run: Path, tmp_path: Path) -> None:
    """As of a run that was killed: half of the requests of one model have no answer."""
    shutil.copytree(run, tmp_path / "run")
    for answers in (tmp_path / "run" / "logprobs").glob("org--one-*/*/*.parquet"):
        pl.read_parquet(answers).filter(pl.col("request") < "8").write_parquet(answers)
    files = export(tmp_path / "run", tmp_path / "out", "--format", "lm-eval")
    (path,) = (path for path in files if path.parent.name == "org--one")
    scored = evaluator.open(tmp_path / "run").scores("gest").filter(model="org/one")["sample"].n_unique()
    assert 0 < scored < 32
    assert json.loads(path.read_text())["n-samples"]["gest"] == {"original": 3565, "effective": scored}


def test_sentences_only_where_asked_for(run: Path, data_dir: Path, tmp_path: Path) -> None:
    def lines(*options: str) -> list[dict[str, Any]]:
        out = tmp_path / "-".join(("out", *options))
        files = export(run, out, "--format", "every-eval-ever", "--task", "gest", "--instances", *options)
        return [json.loads(line) for path in files if path.suffix == ".jsonl" for line in path.read_text().splitlines()]

    sentences = pl.read_csv(data_dir / "gest" / "gest.csv")["sentence"]
    without, with_text = lines(), lines("--text", "--data", str(data_dir))
    assert {line["input"]["raw"] for line in without} == {""}
    assert all(line["input"]["raw"] == sentences[int(line["sample_id"])] for line in with_text)
    scores = evaluator.open(run).scores("gest")
    assert sorted(line["evaluation"]["score"] for line in without) == sorted(scores["score"])


def test_hugging_face(run: Path, translated: Path, rates: pl.DataFrame, tmp_path: Path) -> None:
    files = export(run, tmp_path, "--format", "hugging-face", "--url", "https://example.org/report")
    export(translated, tmp_path, "--format", "hugging-face")
    found = {}
    for path in tmp_path.rglob("*.yaml"):
        assert path.parent.name == ".eval_results"
        for entry in parse_eval_result_entries(yaml.safe_load(path.read_text())):
            found[path.parts[-3], entry.task_id] = entry
    wanted = {("two", "stereoset-en.SS.en.overall"): ("SS", "overall"), ("org--one", "gest.g_s.en.all"): ("g_s", "all")}
    for key, (measure, template) in wanted.items():
        whole = pl.col("group").is_null() | (pl.col("group") == "all")
        mine = (
            (pl.col("model") == key[0].replace("--", "/")) & (pl.col("measure") == measure) & (pl.col("template") == template)
        )
        row = rates.row(by_predicate=mine & whole & (pl.col("task") == key[1].partition(".")[0]), named=True)
        assert found[key].value == row["value"]
        assert f"{row['low']:.6g} to {row['high']:.6g}" in str(found[key].notes)
        assert found[key].source_url == "https://example.org/report"
    assert found["deepl", "gest-mt.f_s.cs"].dataset_id == "kinit/gest"
    assert not any("gest-who" in path.name for path in files)  # nothing is defined
    card = (tmp_path / "two" / "model-card.md").read_text()
    for part in (
        "### gest\n",
        "**What it means**",
        "**What not to conclude**",
        "only 32 (limit, seed 0) of its 3,565",
        "not defined",
    ):
        assert part in card
    gest = card[card.index("### gest\n") : card.index("### stereoset-en\n")]  # notes of that task alone
    assert "eurogest" not in gest
    assert "completion tokens" not in gest
    assert "completion tokens" in card


def test_lm_evaluation_harness(run: Path, translated: Path, rates: pl.DataFrame, tmp_path: Path, validator: Validator) -> None:
    files = [*export(run, tmp_path / "run", "--format", "lm-eval"), *export(translated, tmp_path / "mt", "--format", "lm-eval")]
    program = (
        "import json, sys; from lm_eval.utils import make_table\nfor p in sys.argv[1:]: print(make_table(json.load(open(p))))"
    )
    table = validator("-c", program, *files)
    (path,) = (path for path in files if path.parent.name == "org--one")
    document = json.loads(path.read_text())
    numbers = {
        (task, key): value
        for task, metrics in document["results"].items()
        for key, value in metrics.items()
        if key != "alias" and "_stderr," not in key
    }
    mine = rates.filter(pl.col("model") == "org/one").drop_nulls("value")
    assert sorted(numbers.values()) == sorted(mine["value"])  # each once, none overwritten
    row = whole(mine, task="gest", measure="g_s", template="3")
    error = (row["high"] - row["low"]) / 2 / Z95
    assert numbers["gest", "g_s,3"] == row["value"]
    assert document["results"]["gest"]["g_s_stderr,3"] == pytest.approx(error)
    assert any(
        line.split("|")[1:10] and f"{row['value']:.4f}" in line and f"{error:.4f}" in line for line in table.splitlines()
    )
    assert document["n-samples"]["gest"] == {"original": 3565, "effective": 32}
    assert document["configs"]["gest"]["metadata"]["sha256"] == evaluator.open(run).record["tasks"]["gest"]["sha256"]
    # Another reader of the harness's files.
    program = (
        "import sys; from every_eval_ever.converters.lm_eval.adapter import LMEvalAdapter\n"
        "for path in sys.argv[1:]: print(len(LMEvalAdapter().transform_from_file(path, {})))"
    )
    assert "0" not in validator("-c", program, *files).split()


def test_wrong_choices(run: Path, tmp_path: Path) -> None:
    for options, said in {
        ("--format", "lm-eval", "--instances"): "lm-eval has no records of single samples: remove --instances",
        ("--format", "every-eval-ever", "--text"): "--text requires --instances",
    }.items():
        done = CliRunner().invoke(cli, ["export-results", str(run), "--out", str(tmp_path), *options])
        assert said in str(done.exception)
