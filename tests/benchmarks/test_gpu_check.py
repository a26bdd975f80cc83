"""benchmarks/gpu_check.py on a CPU: its sections on tiny shapes, and what it makes of failures, crashes and missing things."""

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_check as program
import psutil
import pytest
from gpu.section import Section, SkipError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RIGHT = {"what": "a number", "value": 1e-6, "limit": 1e-3, "right": True}
PASSED = {"state": "passed", "reason": "", "seconds": 1.0, "checks": [RIGHT]}


def run(*arguments: str, out: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    environment = {**os.environ, "OUT": str(out), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done, json.loads((out / "gpu_check.json").read_text())


def ended(**parts: Any) -> dict[str, Any]:
    """The entry of a section whose process ended by itself."""
    entry: dict[str, Any] = program.judge(parts, 0, 60.0, "log")
    return entry


def test_kernels_in_tritons_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed (pip install triton; no GPU is needed here)")
    done, record = run("--device", "cpu", "--only", "kernels", out=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = record["sections"]["kernels"]["parts"]
    checks = parts["right"]["checks"]
    assert all(check["value"] < 1e-4 for check in checks)
    assert {check["what"].split(",")[0] for check in checks} == {"bfloat16 (tf32x3)", "float32 (tf32x3)", "float32 (ieee)"}
    cases = parts["times"]["cases"]
    assert {(case["dtype"], case["vocabulary"]) for case in cases} == {
        (dtype, vocabulary) for dtype in ("bfloat16", "float32") for vocabulary in (70, 130)
    }
    assert all(value > 0 for case in cases for value in case["ms"].values())
    assert "share of roofline" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 0 failed, 0 skipped")


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.ray
def test_replicas_and_a_sweep_on_ray(tmp_path: Path) -> None:
    """With vLLM's CPU build; where it or Ray is missing, the program says so and doesn't count the section as passed."""
    missing = [name for name in ("vllm", "ray") if importlib.util.find_spec(name) is None]
    done, record = run("--device", "cpu", "--only", "vllm", "sweep", out=tmp_path)
    sections = record["sections"]
    if missing:
        assert "isn't installed" in sections["vllm"]["skipped"]
        return
    assert done.returncode == 0, json.dumps(sections, indent=1) + done.stderr
    first, second = (sections["vllm"]["parts"][f"{dtype} in a placement group"] for dtype in ("bfloat16", "float32"))
    assert (first["reused_process"], second["reused_process"]) == (False, True)
    assert second["tokens_a_second"] > 0
    assert len(sections["vllm"]["parts"]["two replicas on one card"]["checks"]) == 2
    sweep = sections["sweep"]["parts"]["three models on Ray"]
    assert sweep["scores"] == 16 * (4 + 2 + 2), "samples, templates of a masked and of two generative models"
    assert all(sweep["starts"].values())


@pytest.mark.parametrize("module", ["torch_engine", "onnx_engine"])
def test_engines(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if module == "onnx_engine":
        pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (extra: onnx)")
        pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    section = Section("cpu", time.monotonic() + 600, tmp_path / "section.json")
    importlib.import_module(f"gpu.{module}").run(section, tmp_path)
    found = json.loads((tmp_path / "section.json").read_text())
    entry = ended(**found)
    assert entry["state"] == "passed", entry["reason"]
    skipped = {"torch_engine": "spread over two GPUs", "onnx_engine": "float16"}[module]
    assert [name for name, part in found.items() if "skipped" in part] == [skipped]
    for part in (part for part in found.values() if "skipped" not in part):
        speeds = [value for key, value in part.items() if key.endswith("tokens_a_second")]
        assert speeds
        assert min(speeds) > 0


def test_a_wrong_number_and_an_error_fail_their_part_and_the_next_goes_on(tmp_path: Path) -> None:
    section = Section("cpu", time.monotonic() + 600, tmp_path / "section.json")
    with section.part("wrong") as part:
        part.check("a number", float("nan"), 1.0)
    with section.part("error"):
        raise ValueError("no such\ncard")
    with section.part("absent"):
        raise SkipError("needs two GPUs")
    with section.part("right") as part:
        part.check("a number", 0.5, 1.0)
    found = json.loads((tmp_path / "section.json").read_text())
    assert {name: part.get("state") for name, part in found.items()} == {
        "wrong": "failed",
        "error": "failed",
        "absent": None,
        "right": "passed",
    }
    entry = ended(**found)
    assert entry["state"] == "failed"
    assert entry["reason"] == "wrong: wrong: a number; error: ValueError: no such card"


def test_what_counts_as_passed() -> None:
    absent = {"skipped": "needs two GPUs"}
    assert ended(one=PASSED, two=absent)["state"] == "passed"
    assert "state" not in ended(one=absent), "skipped, not passed"
    assert ended(one={**PASSED, "state": "measured", "checks": []})["reason"] == "nothing was checked"
    assert ended()["state"] == "failed"
    running = {"state": "running", "seconds": 0.0, "checks": []}
    late = program.judge({"one": PASSED, "two": dict(running)}, None, 60.0, "log")
    assert (late["state"], late["reason"]) == ("failed", "two: not done within 60 s")
    crashed = program.judge({"one": PASSED}, -11, 60.0, "log")
    assert (crashed["state"], crashed["reason"]) == ("failed", "its process ended with -11")


def test_a_section_that_hangs_is_ended_with_all_that_it_started() -> None:
    script = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    assert child.is_running()
    assert program.wait(process, 0.5) is None
    assert process.returncode == -9
    process.stdout.close()
    deadline = time.monotonic() + 120
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:  # who takes it over may let it lie
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_without_a_gpu_nothing_passes(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done, record = run("--only", "transformers", out=tmp_path)
    assert done.returncode == 1
    assert record["sections"]["transformers"]["skipped"].startswith("no CUDA device here")
    assert done.stdout.splitlines()[-1].startswith("0 passed, 0 failed, 1 skipped")
