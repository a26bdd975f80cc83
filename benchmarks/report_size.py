"""Time, memory and size of reports of large runs: 24 models × EuroGEST (1.8 million answers), 200 models × GEST.

    EVALUATOR_DATA=DATA python benchmarks/report_size.py [--cases eurogest gest] [--models N] [--limit N]
        [--against EVALUATOR] [--commands NAME…] [--keep FOLDER] [--json FILE]

One model is really run, with an engine that answers at once; the answers of the others are random, and written by the store.
Each command runs in a process of its own: wall and CPU seconds, peak memory, bytes printed. `report` computes the rates,
`report-again` finds them in the run's tables, as do the commands after it. `--against` is another tree's `evaluator`, whose
commands alternate with this tree's on a copy of the run; numbers of both CSVs must agree to 1e-12.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from driver_throughput import ENGINE, make_models
from output import write_record
from polars.testing import assert_frame_equal

CASES = {"eurogest": 24, "gest": 200}
"""Task → number of models."""
COMMANDS: dict[str, list[str]] = {
    "status": ["status"],
    "report": ["report", "--format", "csv"],
    "report-again": ["report", "--format", "csv"],
    "table": ["report"],
    "page": ["report", "--format", "html"],
    "compare": ["compare", "--baseline", "m1", "--format", "csv"],
    "bca": ["report", "--format", "csv", "--interval", "bca"],
}
"""Name → the command; the run follows its first word."""
LIMITS = {"cpu_s": 60.0, "peak_mb": 3000, "bytes": 10_000_000}
STATUS_LIMIT = 2.0
"""CPU seconds of `status`."""


def make_run(task_name: str, models: int, limit: int | None, folder: Path) -> None:
    """A run of so many models, all but the first with random answers."""
    from evaluator.scoring.driver import execute
    from evaluator.scoring.spec import ModelSpec, RunSpec
    from evaluator.tasks import task
    from evaluator_serving.engine import EngineOptions

    (model,) = make_models(folder / "models", 1, alike=True)
    spec = ModelSpec(str(model), ENGINE, label="m0", options=EngineOptions(device="cpu"))
    run = execute(RunSpec((spec,), (task(task_name),), folder / task_name, limit=limit, verify=False)).run
    entry = run.record["models"]["m0"]
    others = {f"m{i}": {**entry, "fingerprint": f"{i:012x}", "model": f"models/m{i}"} for i in range(1, models)}
    run.extend(models=others)
    answers = run.answers("m0").select("request", "candidate", "tokens", "logprobs")
    (kind,) = [path.name for path in run.answers_folder("m0").iterdir()]
    flat = answers.select("request", "candidate", "tokens", row=pl.int_range(pl.len())).explode("tokens")
    random = np.random.default_rng(0)
    sentences = random.normal(0, 1, answers.height)
    for number, name in enumerate(others):
        noise = sentences[flat["row"].to_numpy()] * (0.2 + number / models) + random.normal(-3, 1, flat.height)
        made = flat.with_columns(logprobs=pl.Series(noise)).group_by("row", maintain_order=True)
        frame = made.agg(pl.first("request", "candidate"), "tokens", "logprobs").drop("row")
        run.add_answers(run.answers_folder(name), {kind: frame})


def timed(evaluator: Path, command: list[str], run: Path) -> tuple[dict[str, Any], bytes]:
    """Run a command of one tree on a run; what it took and what it printed."""
    with tempfile.TemporaryFile() as out:
        before = os.times()
        process = subprocess.Popen([str(evaluator), command[0], str(run), *command[1:]], stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall = os.times().elapsed - before.elapsed
        out.seek(0)
        printed = out.read()
    if status:
        sys.exit(f"{evaluator} {' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    cpu = used.ru_utime + used.ru_stime
    return {"cpu_s": round(cpu, 1), "wall_s": round(wall, 1), "peak_mb": used.ru_maxrss // 1024, "bytes": len(printed)}, printed


def check_equal(one: bytes, other: bytes) -> None:
    """Raise AssertionError where two CSVs differ by more than 1e-12.

    All groups of m0 have the same rate but for its rounding, so its ranks mean nothing.
    """
    frames = (pl.read_csv(BytesIO(each), infer_schema_length=None) for each in (one, other))
    first, second = (frame.filter(pl.col("model") != "m0") for frame in frames)
    assert_frame_equal(first, second, rel_tol=1e-12, abs_tol=1e-12)


def measure(run: Path, commands: list[str], against: Path | None) -> dict[str, Any]:
    """Each command of each tree: tree → command → what it took."""
    sides = {"here": (Path(sys.executable).with_name("evaluator"), run)}
    if against:
        sides["against"] = (against, run.with_name(f"{run.name}-against"))
        shutil.copytree(run, sides["against"][1], dirs_exist_ok=True)
    for _, folder in sides.values():
        shutil.rmtree(folder / "tables", ignore_errors=True)
    found: dict[str, Any] = {side: {} for side in sides}
    for name in commands:
        printed = {}
        for side, (evaluator, folder) in sides.items():
            found[side][name], printed[side] = timed(evaluator, COMMANDS[name], folder)
            print(
                f"  {name:13} {side:8} " + " ".join(f"{key} {value:,}" for key, value in found[side][name].items()), flush=True
            )
        if against and "csv" in COMMANDS[name]:
            check_equal(printed["here"], printed["against"])
    return found


def exceeded(results: dict[str, Any]) -> list[str]:
    """Limits that this tree's commands exceed, a line each."""
    lines = []
    for case, result in results.items():
        for name, took in result["here"].items():
            limits = {**LIMITS, "cpu_s": STATUS_LIMIT} if name == "status" else LIMITS
            checked = {key: value for key, value in limits.items() if key != "bytes" or name == "page"}
            lines += [f"{case} {name}: {key} {took[key]:,} > {most:,}" for key, most in checked.items() if took[key] > most]
    return lines


def main() -> int:
    """Make the runs, measure, tell; exit code 1 beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--models", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--against", type=Path, help="another tree's evaluator")
    parser.add_argument("--keep", type=Path, help="keep the runs here, and use those that are there")
    parser.add_argument("--note", default="", help="what a reader must know of the machine")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "report_size.json")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make:
        make_run(asked.cases[0], asked.models, asked.limit, asked.make)
        return 0
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for case in asked.cases:
            folder = (asked.keep or Path(temporary)) / case
            models = asked.models or CASES[case]
            run = folder / case
            if not run.is_dir():  # in another process: a child's peak of memory begins with its parent's
                command = [sys.executable, __file__, "--make", str(folder), "--cases", case, "--models", str(models)]
                command += ["--limit", str(asked.limit)] if asked.limit else []
                subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)})
            print(f"{case}, {models} models", flush=True)
            results[case] = {"models": models, **measure(run, asked.commands, asked.against)}
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "note": asked.note}
    write_record(asked.json, {"machine": machine, "limit": asked.limit, "limits": LIMITS, "cases": results})
    for line in (lines := exceeded(results)):
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
