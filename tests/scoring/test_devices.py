"""A device, or a module, that isn't here is told in a line before a run's folder is made."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from tiny_models import tiny_model

from evaluator.scoring.driver import Outcome, execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator.vocabulary import DataSource
from evaluator_serving import devices
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.onnx import runners
from evaluator_serving.registry import engine_class
from tests.scoring.faulty import Faulty


class Lacking(Faulty):
    """An engine whose library isn't installed."""

    requires: ClassVar[Sequence[str]] = ("no_such_library",)  # type: ignore[assignment]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    tiny_model("bert", folder / "masked")
    tiny_model("gpt2", folder / "generative")
    return folder


def machine(monkeypatch: pytest.MonkeyPatch, *, torch_is: str, driver: bool, found: int) -> None:
    """What the functions of torch and the system that are asked would say on a machine of this kind."""
    monkeypatch.setattr(devices, "version", lambda name: torch_is)
    monkeypatch.setattr(devices, "has_driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    # NVML counts cards of a driver that is too old for this build of torch, too.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found or int(driver))


def swept(spec: RunSpec) -> Outcome:
    return sweep(spec, SweepOptions("none"))


GPU = {"torch_is": "2.13.0+cu130", "driver": True}


@pytest.mark.parametrize("drive", [execute, swept])
@pytest.mark.parametrize(
    ("model", "engine", "device", "dtype", "here", "said"),
    [
        (
            "masked",
            "transformers",
            "cuda:1",
            "float32",
            {**GPU, "torch_is": "2.13.0+cpu", "found": 0},
            "is built for CPUs alone",
        ),
        ("masked", "auto", "cuda", "float32", {**GPU, "driver": False, "found": 0}, "no driver of CUDA devices is found"),
        ("generative", "auto", "cuda", "float32", {**GPU, "found": 0}, "no CUDA device that PyTorch can use is found"),
        ("generative", "transformers", "cuda:7", "float32", {**GPU, "found": 1}, "cuda:0 is the only CUDA device found"),
        ("masked", "onnx", "cuda:2", "float32", {**GPU, "found": 2}, "2 CUDA devices, cuda:0 to cuda:1, are found"),
        ("masked", "onnx", "cuda", "float32", {**GPU, "found": 1}, "this ONNX Runtime has no CUDAExecutionProvider"),
        ("masked", "transformers", "cuda:x", "float32", {**GPU, "found": 1}, "unknown device 'cuda:x': use auto, cpu, cuda or"),
        (
            "masked",
            "transformers",
            "gpu",
            "float32",
            {**GPU, "found": 1},
            "unknown device 'gpu': use auto, cpu, cuda or cuda:1",
        ),
        ("masked", "transformers", "meta", "float32", {**GPU, "found": 1}, "doesn't run on 'meta'"),
        ("masked", "onnx", "cpu", "float16", {**GPU, "found": 1}, "the onnx engine runs float16 on CUDA only"),
        ("masked", "tests.scoring.test_devices:Lacking", "auto", "float32", {**GPU, "found": 1}, "no module no_such_library"),
    ],
)
def test_what_is_not_here_leaves_nothing_behind(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drive: Callable[[RunSpec], Outcome],
    model: str,
    engine: str,
    device: str,
    dtype: str,
    here: dict[str, object],
    said: str,
) -> None:
    asked = ModelSpec(str(folder / model), engine, options=EngineOptions(dtype=dtype, device=device), label="m")
    out = tmp_path / "run"
    spec = RunSpec(models=(asked,), tasks=(task("gest-demo"),), out=out, data=DataSource(), limit=1)
    machine(monkeypatch, **here)  # type: ignore[arg-type]
    with pytest.raises(InputError) as told:
        drive(spec)
    assert str(told.value).startswith("m: ")
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert not out.exists()


def test_a_run_that_is_finished_needs_no_device(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(device: str) -> RunSpec:
        asked = ModelSpec(str(folder / "masked"), "transformers", options=EngineOptions(device=device))
        return RunSpec(models=(asked,), tasks=(task("gest-demo"),), out=tmp_path / "run", data=DataSource(), limit=1)

    monkeypatch.setattr(devices, "has_driver", lambda: False)
    assert not execute(spec("cpu")).errors
    machine(monkeypatch, torch_is="2.13.0+cpu", driver=False, found=0)
    assert not execute(spec("cuda")).errors


def test_auto_is_a_gpu_only_where_torch_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's CUDA build names its provider on machines without a GPU too."""
    monkeypatch.setattr(
        runners.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    machine(monkeypatch, **GPU, found=0)  # type: ignore[arg-type]
    assert runners.provider_names("auto", tensorrt=False) == ("cpu", ["CPUExecutionProvider"])
    with pytest.raises(InputError, match="no CUDA device that PyTorch can use"):
        engine_class("onnx").check_here(EngineOptions(device="cuda"), frozenset({"masked"}))
    machine(monkeypatch, **GPU, found=1)  # type: ignore[arg-type]
    kind, providers = runners.provider_names("auto", tensorrt=False)
    assert kind == "cuda"
    assert providers[0][0] == "CUDAExecutionProvider"
    with pytest.raises(InputError, match="generative models on CPUs only"):
        engine_class("onnx").check_here(EngineOptions(device="cuda"), frozenset({"causal"}))
