"""benchmarks/gpu_check.py as a program: tiny shapes, in Triton's interpreter on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed (pip install triton; no GPU is needed here)")

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"


def run(*arguments: str, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OUT": str(out), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(PROGRAM), *arguments], env=environment, capture_output=True, text=True)


def test_smoke_run_prints_its_table_last_and_writes_json(tmp_path: Path) -> None:
    done = run("--smoke", out=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert report["errors"]
    assert all(error["error"] < 1e-4 for error in report["errors"])
    assert {error["precision"] for error in report["errors"]} == {"tf32x3", "ieee"}
    assert {(c["dtype"], c["vocabulary"], c["rows"]) for c in report["cases"]} == {
        (dtype, vocabulary, 3) for dtype in ("bfloat16", "float32") for vocabulary in (70, 130)
    }
    for case in report["cases"]:
        assert set(case["ms"]) == {"triton", "torch", "compiled"}
        assert all(value > 0 for value in case["ms"].values())
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("float32")
    assert " 130 " in last
    assert "share of roofline" in done.stdout


def test_sizes_that_no_time_is_left_for_are_named(tmp_path: Path) -> None:
    done = run("--smoke", "--seconds", "0", out=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert report["cases"] == []
    assert len(report["left_out"]) == 4
