"""Processors, memory, shared memory, GPUs and their driver."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from evaluator.doctor.finding import Finding
from evaluator.sweep.hardware import GIB, Gpu, gpus
from evaluator_serving.devices import bfloat16_units
from evaluator_serving.memory import available_memory, usable_cores

SHARED = Path("/dev/shm")
SHARED_LEAST = 2 * GIB
"""Ray's object store and tensors exchanged between processes of a model are in shared memory; containers have 64 MiB."""
MEMORY_LEAST = 2 * GIB
"""The libraries alone need almost 1 GiB."""


def findings() -> Iterator[Finding]:
    """All checks of the machine."""
    yield _processors()
    yield _bfloat16()
    yield _memory(available_memory(), psutil.virtual_memory().total)
    if SHARED.is_dir():
        usage = shutil.disk_usage(SHARED)
        yield shared_memory(usage.total, usage.free)
    yield from _gpus()


def _processors() -> Finding:
    cores, threads = usable_cores(), os.environ.get("OMP_NUM_THREADS")
    text = f"{cores} usable cores" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    if threads and threads.isdigit() and int(threads) > cores:
        return Finding("cpu", "", "warning", text, "more threads than cores are slow: lower or unset OMP_NUM_THREADS")
    return Finding("cpu", "", "ok", text)


def _bfloat16() -> Finding:
    """Which dtypes are fast here."""
    found = {
        "amx_bf16": "matrix units: bfloat16 and bf16x2 are several times as fast as float32",
        "avx512_bf16": "vector units: bfloat16 is up to twice as fast as float32, bf16x2 as fast",
    }
    units = bfloat16_units()
    if units is None:
        return Finding("cpu", "bfloat16", "note", "no units for bfloat16 are known: float32 is fastest")
    return Finding("cpu", "bfloat16", "ok", f"{units}, {found[units]}")


def _memory(free: int, total: int) -> Finding:
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if free < MEMORY_LEAST:
        return Finding("memory", "", "warning", text, "end other programs, or raise the container's limit")
    return Finding("memory", "", "ok", text)


def shared_memory(total: int, free: int) -> Finding:
    """The finding for `/dev/shm` of this size in bytes."""
    text = f"{SHARED}: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if total < SHARED_LEAST or free < SHARED_LEAST // 4:
        remedy = "Ray and models on several devices need more: docker run --shm-size=8g, or a memory volume in Kubernetes"
        return Finding("shared memory", "", "warning", text, remedy)
    return Finding("shared memory", "", "ok", text)


def _gpus() -> Iterator[Finding]:
    try:
        smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=120, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        smi = ""
    yield from gpu_findings(gpus() if smi else [], driver_versions(smi), torch_cuda())


def driver_versions(smi: str) -> tuple[str, str]:
    """(driver version, newest supported CUDA version) from nvidia-smi's output; an empty string for each that is missing."""
    driver = re.search(r"Driver Version:\s*([\d.]+)", smi)
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", smi)
    return driver[1] if driver else "", cuda[1] if cuda else ""


def torch_cuda() -> str | None:
    """The CUDA version of the torch build: empty for a CPU build, None without torch. Does not import torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf8")
    except OSError:
        return None
    built = re.search(r"^cuda\s*(?::[^=]+)?=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return built[1] if built else ""


def gpu_findings(devices: Sequence[Gpu], driver: tuple[str, str], built: str | None) -> Iterator[Finding]:
    """The GPUs, and whether torch can use them. `driver` as in `driver_versions`, `built` as in `torch_cuda`."""
    if not devices:
        if driver[0]:
            hidden = "CUDA_VISIBLE_DEVICES" in os.environ
            remedy = "CUDA_VISIBLE_DEVICES hides them" if hidden else "give the container access to GPUs: docker run --gpus all"
            yield Finding("gpu", "", "warning", f"a driver ({driver[0]}), but no usable GPU", remedy)
        elif built:
            yield Finding(
                "gpu", "", "note", f"none; torch is a CUDA {built} build", "models run on the CPU; torch's CPU build is smaller"
            )
        else:
            yield Finding("gpu", "", "note", "none: models run on the CPU")
        return
    for gpu in devices:
        yield Finding("gpu", gpu.index, "ok", f"{gpu.name}, {gpu.free / GIB:.1f} GiB free")
    text = f"driver {driver[0] or '?'} supports CUDA {driver[1] or '?'}"
    if built is None:
        return
    if not built:
        yield Finding(
            "cuda", "", "broken", f"{text}, but torch is a CPU build", "install torch's CUDA build (command: pytorch.org)"
        )
    elif driver[1] and int(built.split(".")[0]) > int(driver[1].split(".")[0]):
        remedy = f"install a newer driver, or torch built for CUDA {driver[1]} or older"
        yield Finding("cuda", "", "broken", f"{text}, but torch was built for {built}", remedy)
    else:
        yield Finding("cuda", "", "ok", f"{text}; torch was built for {built}")
