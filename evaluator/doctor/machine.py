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
from evaluator_serving.memory import available_memory, usable_cores

SHARED = Path("/dev/shm")
SHARED_LEAST = 2 * GIB
"""Ray keeps its objects there, and processes of one model exchange tensors through it: containers have 64 MiB by default."""
MEMORY_LEAST = 2 * GIB
"""Libraries alone take most of a gibibyte."""


def findings() -> Iterator[Finding]:
    """All of this machine's."""
    yield _processors()
    yield _memory(available_memory(), psutil.virtual_memory().total)
    if SHARED.is_dir():
        usage = shutil.disk_usage(SHARED)
        yield shared_memory(usage.total, usage.free)
    yield from _gpus()


def _processors() -> Finding:
    cores, threads = usable_cores(), os.environ.get("OMP_NUM_THREADS")
    text = f"{cores} cores may be used" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    if threads and threads.isdigit() and int(threads) > cores:
        return Finding("cpu", "", "warning", text, "more threads than cores slow each other down: lower or unset it")
    return Finding("cpu", "", "ok", text)


def _memory(free: int, total: int) -> Finding:
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB can be used"
    if free < MEMORY_LEAST:
        return Finding("memory", "", "warning", text, "end other programs, or raise the container's limit")
    return Finding("memory", "", "ok", text)


def shared_memory(total: int, free: int) -> Finding:
    """`/dev/shm` with so many bytes."""
    text = f"{SHARED}: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if total < SHARED_LEAST or free < SHARED_LEAST // 4:
        remedy = "Ray and models over several devices want more: docker run --shm-size=8g, or a memory volume in Kubernetes"
        return Finding("shared memory", "", "warning", text, remedy)
    return Finding("shared memory", "", "ok", text)


def _gpus() -> Iterator[Finding]:
    try:
        said = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=120, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        said = ""
    found = gpus() if said else []
    driver = driver_versions(said)
    yield from gpu_findings(found, driver, torch_cuda())


def driver_versions(said: str) -> tuple[str, str]:
    """(driver's version, newest CUDA that it runs) as nvidia-smi prints them; empty where it doesn't."""
    driver = re.search(r"Driver Version:\s*([\d.]+)", said)
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", said)
    return driver[1] if driver else "", cuda[1] if cuda else ""


def torch_cuda() -> str | None:
    """The CUDA version that torch was built with, empty for a CPU build, None without torch; torch isn't imported."""
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


def gpu_findings(found: Sequence[Gpu], driver: tuple[str, str], built: str | None) -> Iterator[Finding]:
    """The GPUs, and whether torch can use them: `driver` as in `driver_versions`, `built` as in `torch_cuda`."""
    if not found:
        if driver[0]:
            hidden = "CUDA_VISIBLE_DEVICES" in os.environ
            remedy = "CUDA_VISIBLE_DEVICES hides them" if hidden else "give the container its GPUs: docker run --gpus all"
            yield Finding("gpu", "", "warning", f"a driver ({driver[0]}) and no GPU that may be used", remedy)
        elif built:
            yield Finding(
                "gpu", "", "note", f"none, and torch is a CUDA {built} build", "the CPU is used; its CPU build is smaller"
            )
        else:
            yield Finding("gpu", "", "note", "none: the CPU is used")
        return
    for gpu in found:
        yield Finding("gpu", gpu.index, "ok", f"{gpu.name}, {gpu.free / GIB:.1f} GiB free")
    text = f"driver {driver[0] or '?'} runs CUDA {driver[1] or '?'}"
    if built is None:
        return
    if not built:
        yield Finding(
            "cuda", "", "broken", f"{text}, and torch is a CPU build", "install torch's CUDA build (pytorch.org has the line)"
        )
    elif driver[1] and int(built.split(".")[0]) > int(driver[1].split(".")[0]):
        remedy = f"a newer driver, or torch built for CUDA {driver[1]} or older"
        yield Finding("cuda", "", "broken", f"{text}, and torch was built with {built}", remedy)
    else:
        yield Finding("cuda", "", "ok", f"{text}, torch was built with {built}")
