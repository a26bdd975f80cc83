"""A long sweep on Ray whose actors are killed every 30 seconds: checks for leaks, lost or duplicate answers, and leftovers.

    python benchmarks/soak.py [--minutes 20] [--every 30] [--tiny] [--json FILE]

One small model (the demo's SmolLM2, or random weights) runs on two workers with synthetic sentences for about the requested
time. Every `--every` seconds a process that has loaded its model gets SIGKILL, except one process that lives to the end.
Required is that

- median memory of the driver, the surviving model process and the killed ones in the last quarter is within 10% of that in the
  first quarter after the warm-up;
- every request has one answer, none is stored twice, and no failure is recorded;
- no process of the sweep is left.

Memory is anonymous memory including swap, since mapped files cannot leak. Memory of Ray's own processes is reported only: Ray
remembers the last 100,000 calls and dead actors. Linux only.
"""

import contextlib
import csv
import json
import os
import random
import re
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from fault_soak import SPOKEN, TEMPLATES, end, raw_answers, title, tree
from output import benchmark_parser, write_record

from evaluator.demo import demo_model
from evaluator.store.run import Run

HERE = Path(__file__).resolve().parent
MARK = "EVALUATOR_SOAK"
"""An environment variable with a word of this run's own, which everything that it starts inherits."""
WARM_UP, WARM_SECONDS = 0.15, 60.0
"""Share of the time that counts as warm-up, and its least seconds (but no more than half): allocators fill."""
AT_WORK = 5.0
"""Seconds of scoring after which a model's process counts, and may be killed."""
FLAT = 0.10
"""By how much memory may grow between the beginning and the end."""
CALM = 600
"""Sentences that tell the speed: several chunks for each worker."""
DRIVER, SPARED, KILLED, RAY = KINDS = ("driver", "spared model process", "killed model processes", "Ray's processes")
JUDGED = (DRIVER, SPARED, KILLED)


@dataclass(slots=True)
class Watch:
    """The memory of each kind of process over time: (seconds since the start, MiB); and every process that was ever seen.

    `spared`: the model process that isn't killed, once there is one; `scoring`: since when each of them was seen to score.
    """

    begun: float
    series: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    seen: set[psutil.Process] = field(default_factory=set)
    spared: psutil.Process | None = None
    scoring: dict[psutil.Process, float] = field(default_factory=dict)

    def look(self, driver: psutil.Process, family: Sequence[psutil.Process]) -> list[psutil.Process]:
        """Note what the processes hold now. Returns the model processes that may be killed: at work, and not spared."""
        at = time.time() - self.begun
        self.seen.update(family)
        begun = [one for one in family if title(one).startswith("ray::RayWorker.score")]
        working = [one for one in begun if at - self.scoring.setdefault(one, at) >= AT_WORK]
        if self.spared is None or not self.spared.is_running():  # a look may also miss one that is there
            self.spared = next(iter(working), None)
        killable = [one for one in working if one != self.spared]
        groups = {DRIVER: [driver], SPARED: [one for one in working if one == self.spared], KILLED: killable}
        for kind, processes in groups.items():
            self.series[kind] += [(at, mib) for one in processes if (mib := own_mib(one.pid))]
        if total := sum(own_mib(one.pid) for one in family if name_of(one) in ("raylet", "gcs_server")):
            self.series[RAY].append((at, total))
        return killable

    def changes(self, seconds: float) -> dict[str, dict[str, float]]:
        """By kind: median MiB in the first and in the last quarter after the warm-up, and the change."""
        found = {}
        begin = max(WARM_UP * seconds, min(WARM_SECONDS, seconds / 2))
        quarter = (seconds - begin) / 4
        for kind, points in self.series.items():
            first = [mib for at, mib in points if begin <= at < begin + quarter]
            last = [mib for at, mib in points if at >= seconds - quarter]
            if first and last:
                a, b = statistics.median(first), statistics.median(last)
                found[kind] = {"first_mib": round(a, 1), "last_mib": round(b, 1), "change": round(b / a - 1, 4)}
        return found


def own_mib(process: int) -> float:
    """MiB that a process has written itself, 0 where it has gone."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text(encoding="utf8")
        return sum(int(kib) for kib in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB$", status, re.MULTILINE)) / 1024
    return 0.0


def name_of(process: psutil.Process) -> str:
    """Its program's name, empty where it has gone."""
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return ""


def write_sweep(folder: Path, name: str, model: Path, engine: str, sentences: int) -> Path:
    """A SWEEP.toml of one model with so many made-up sentences."""
    dice = random.Random(sentences)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("sentence", "stereotype"))
        for i in range(sentences):
            said = " ".join(["I", *dice.choices(SPOKEN.split(), k=dice.randint(3, 9)), str(i)])
            writer.writerow((f"{said}.", i % 16 + 1))
    path = folder / f"{name}.toml"
    entry = f'[[models]]\nmodel = "{model}"\nname = "m"\nengine = "{engine}"\n'
    path.write_text(f'tasks = ["gest"]\nsamples = "{folder / name}.csv"\nout = "unused"\n{entry}')
    return path


def start(sweep: Path, out: Path, mark: str, workers: int) -> subprocess.Popen[bytes]:
    """The sweep's command in a session of its own."""
    environment = os.environ | {MARK: mark, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(out)]
    command += ["--ray", "local", "--workers", str(workers), "--no-verify"]
    log = (out.parent / f"{out.name}.log").open("ab")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def left_behind(mark: str, seen: Collection[psutil.Process] = ()) -> list[str]:
    """Titles of live processes that were `seen`, or carry this run's mark (which is gone from where Ray writes its titles)."""
    found = []
    for process in {*psutil.process_iter(), *seen}:
        with contextlib.suppress(psutil.Error):
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process in seen or process.environ().get(MARK) == mark:
                found.append(title(process)[:120] or process.name())
    return found


def speed(folder: Path, model: Path, engine: str, workers: int, sentences: int) -> tuple[float, float]:
    """Sentences a second of one worker in an undisturbed sweep, while it scores; and its seconds until the first are stored."""
    sweep = write_sweep(folder, "calm", model, engine, sentences)
    process = start(sweep, folder / "calm", secrets.token_hex(8), workers)
    assert process.wait() == 0, (folder / "calm.log").read_text()[-3000:]
    run = Run.open(folder / "calm")
    starts = [float(start["seconds"]["first_answer"]) for start in run.record["models"]["m"]["starts"]]
    # Not from the first chunk to the last: one worker may have done most of them before the other one had loaded.
    return sentences / float(run.timings()["seconds"].sum()), statistics.median(starts)


def enough(rate: float, start: float, *, seconds: float, every: float, workers: int) -> int:
    """Sentences that take about so long where all workers but one are killed, at a worker's rate and seconds to start."""
    life = max(every, start + AT_WORK)
    return max(400, int(rate * seconds * (1 + (workers - 1) * (life - start) / life)))


def disturbed(sweep: Path, out: Path, mark: str, workers: int, every: float) -> tuple[Watch, dict[str, Any]]:
    """Run to the end; a process that holds a model is killed every so many seconds. Memory is noted every two seconds."""
    dice = random.Random(5)
    watch, kills = Watch(time.time()), 0
    process = start(sweep, out, mark, workers)
    driver, family = psutil.Process(process.pid), []
    due = time.monotonic() + every
    try:
        while process.poll() is None:
            time.sleep(2.0)
            family = tree(process)
            killable = watch.look(driver, family)
            if time.monotonic() >= due and killable:
                due = time.monotonic() + every
                with contextlib.suppress(psutil.Error):
                    dice.choice(killable).send_signal(signal.SIGKILL)
                    kills += 1
                    print(f"{time.time() - watch.begun:.0f} s: killed {kills}", file=sys.stderr, flush=True)
        seconds = time.time() - watch.begun
        return watch, {"seconds": round(seconds, 1), "kills": kills, "exit_code": process.returncode}
    finally:
        if process.poll() is None:
            end(process, tree(process) or family)


def soak(model: Path, engine: str, folder: Path, *, minutes: float, every: float, workers: int = 2) -> dict[str, Any]:
    """The whole experiment. Returns the record; what was found wrong stands in its `wrong`."""
    rate, first = speed(folder, model, engine, workers, CALM)
    sentences = enough(rate, first, seconds=60 * minutes, every=every, workers=workers)
    print(f"{rate:.1f} sentences/s a worker, {first:.0f} s to start: {sentences}", file=sys.stderr, flush=True)
    mark = secrets.token_hex(8)
    sweep = write_sweep(folder, "run", model, engine, sentences)
    watch, record = disturbed(sweep, folder / "run", mark, workers, every)
    time.sleep(5.0)
    orphans = left_behind(mark, watch.seen)
    run = Run.open(folder / "run")
    raw = raw_answers(folder / "run")
    answered = raw.select("request").n_unique()
    doubled = raw.group_by("request", "candidate").len().filter(pl.col("len") > 1).height
    memory = watch.changes(record["seconds"])
    record |= {
        "sentences": sentences,
        "requests": answered,
        "stored_twice": doubled,
        "failures": run.failures().height,
        "orphans": orphans,
        "memory": memory,
        "memory_every_minute": {kind: _minutes(points) for kind, points in watch.series.items()},
    }
    grown = {kind: memory[kind]["change"] for kind in JUDGED if kind in memory}
    told = {
        f"the sweep ended with {record['exit_code']}": record["exit_code"] != 0,
        f"{answered} of {TEMPLATES * sentences} requests have an answer": answered != TEMPLATES * sentences,
        f"{doubled} answers are stored twice": doubled > 0,
        f"{record['failures']} failures are recorded": record["failures"] > 0,
        f"left behind: {orphans}": bool(orphans),
        **{f"{kind}: memory grew by {change:.0%}": change > FLAT for kind, change in grown.items()},
        "memory was not seen of every kind of process": set(memory) != set(KINDS),
        f"it took {record['seconds']:.0f} s, less than was asked": record["seconds"] < 0.95 * 60 * minutes,
    }
    return record | {"wrong": [text for text, wrong in told.items() if wrong]}


def _minutes(points: Sequence[tuple[float, float]]) -> list[float]:
    """Median MiB of each minute."""
    by_minute: dict[int, list[float]] = {}
    for at, mib in points:
        by_minute.setdefault(int(at // 60), []).append(mib)
    return [round(statistics.median(values), 1) for _, values in sorted(by_minute.items())]


def main() -> int:
    """Run it, print and write the record; exit code 1 if something is wrong."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two kills")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--tiny", action="store_true", help="a tiny model of random weights instead of the demo's")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        if options.tiny:
            sys.path.insert(0, str(HERE.parent))
            from tests.tiny_models import tiny_model

            model = tiny_model("gpt2", folder / "model", n_layer=8)
        else:
            model = demo_model()
        record = soak(model, options.engine, folder, minutes=options.minutes, every=options.every)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record = {"model": "random weights" if options.tiny else "SmolLM2-135M-Instruct", "engine": options.engine} | record
    print(json.dumps(record, indent=1))
    write_record(options.json, record)
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
