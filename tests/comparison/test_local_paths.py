"""Reports don't tell where things lie on the machine that made the run."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.reports.local_paths import without_folders
from tests.comparison.conftest import make_run, scores


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/models/gpt", "gpt"),
        ("/home/me/my models/gpt", "gpt"),
        ("early=/home/me/run1/final", "early=final"),
        ("a: merged into /srv/base (0123)", "a: merged into base (0123)"),
        ("/data/gest.csv, line 7: the sentence is empty", "gest.csv, line 7: the sentence is empty"),
        (
            "https://host/a/b and s3://bucket/a/b of org/model, and/or ./x/y",
            "https://host/a/b and s3://bucket/a/b of org/model, and/or ./x/y",
        ),
    ],
)
def test_absolute_paths_lose_their_folders(text: str, shown: str) -> None:
    assert without_folders(text) == shown


@pytest.mark.parametrize("format_", ["table", "markdown", "latex", "html"])
def test_no_report_tells_a_folder(format_: str, data: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", data, one=scores())
    record = json.loads((run / "run.json").read_text())
    base = {"kind": "LORA", "base": f"{tmp_path}/base", "base_revision": "b", "revision": "r"}
    record["models"]["one"]["adapter"] = base
    (run / "run.json").write_text(json.dumps(record))
    plain, whole = (
        CliRunner().invoke(cli, ["report", str(run), "--format", format_, "--resamples", "9", *more]).output
        for more in ([], ["--paths"])
    )
    assert "merged into base" in plain.replace("\\", "")
    assert str(tmp_path) not in plain
    assert f"{tmp_path.name}/base" in " ".join(whole.split()).replace("\\", "")
