"""A sweep on Ray while actors, workers and the driver are killed at random, with one row that crashes the engine.

    python benchmarks/fault_soak.py [--kills 30] [--json FILE]

A small real model (the demo's SmolLM2) and three with random weights run on two workers. Every few seconds one process gets
SIGKILL: usually an actor with a model, sometimes another Ray worker, sometimes the driver with all its children (the command is
then repeated). One sentence makes the engine kill its own process. At the end

- all answers and report values equal those of an uninterrupted run without that sentence, up to float32 rounding (chunks and
  batches differ after a crash);
- that row is in the run's failures, and no other;
- no answer was stored twice, and only chunks in flight at a crash were scored twice (the engine logs what it scores).
"""

import contextlib
import csv
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
from numpy.typing import NDArray
from output import benchmark_parser, write_record

from evaluator.demo import demo_model
from evaluator.store.answers import ANSWERS
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from evaluator_serving.engine import DeviceKind
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Row
from evaluator_serving.transformers_engine.engine import TransformersEngine

HERE = Path(__file__).resolve().parent
POISON = "I always swallow the bitter poison today."
TEMPLATES = 2
"""Of GEST, for generative models: requests a sentence."""
ROUNDING = 1e-4
KINDS = ("actor", "worker", "driver")
NUMBERS = ["score", "logprob_male", "logprob_female"]
SPOKEN = "like to work sleep think talk cook read lead help with my friends family often never always today quietly"


class PoisonEngine(TransformersEngine):
    """The transformers engine, which dies of one of its rows and writes down all that it has scored.

    The row is the one that holds any of the token sequences in EVALUATOR_POISON (one for each tokenizer, `|` between them).
    One line a call goes to the file EVALUATOR_SCORED: the model's folder and a digest of each row; or `died` alone. Until the
    file EVALUATOR_GO is there, each process scores one chunk: the sweep isn't over before the first kill.
    """

    chunks = 0

    @classmethod
    def chunk_tokens(cls, parameters: int, device: DeviceKind) -> int:
        """Many chunks of a tiny model: there is work left at each kill."""
        return min(4096, super().chunk_tokens(parameters, device))

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Score, or kill this process without a word if the poisonous row is among the rows."""
        self.chunks += len(rows) > 1  # a single row is how an engine is asked whether it sees ahead
        while self.chunks > 1 and not os.path.exists(os.environ["EVALUATOR_GO"]):
            time.sleep(0.05)
        texts = [" ".join(map(str, row.ids)) for row in rows]
        if any(poison in text for poison in os.environ["EVALUATOR_POISON"].split("|") for text in texts):
            self._note("died")
            os.kill(os.getpid(), signal.SIGKILL)
        numbers = super().score(rows)
        digests = [hashlib.sha1(f"{row}".encode(), usedforsecurity=False).hexdigest()[:16] for row in rows]
        self._note(" ".join([self._source.path.name, *digests]))
        return numbers

    @staticmethod
    def _note(line: str) -> None:
        with open(os.environ["EVALUATOR_SCORED"], "a") as file:  # one write in append mode: whole lines, whoever else writes
            file.write(f"{line}\n")


def write_inputs(folder: Path, models: Sequence[Path], sentences: int) -> tuple[Path, Path, str]:
    """Two SWEEP.toml with made-up sentences: without the poisonous one, and with it. Also returns EVALUATOR_POISON."""
    dice = random.Random(1)
    rows = [(" ".join(["I", *dice.choices(SPOKEN.split(), k=dice.randint(3, 9))]) + ".", i % 16 + 1) for i in range(sentences)]
    entries = [f'[[models]]\nmodel = "{m}"\nname = "m{i}"\nengine = "fault_soak:PoisonEngine"\n' for i, m in enumerate(models)]
    paths = []
    for name, samples in (("calm", rows), ("run", [*rows, (POISON, 1)])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("sentence", "stereotype"), *samples])
        path = folder / f"{name}.toml"
        path.write_text(f'tasks = ["gest"]\nsamples = "{folder / name}.csv"\nout = "unused"\n' + "\n".join(entries))
        paths.append(path)
    tokenizers = [load_tokenizer(resolve(str(model))) for model in models]
    ids = [tokenizer(" swallow the bitter poison", add_special_tokens=False)["input_ids"] for tokenizer in tokenizers]
    return paths[0], paths[1], "|".join(sorted({" ".join(map(str, one)) for one in ids}))


def go(out: Path) -> Path:
    """The file for which a run's engines wait."""
    return out.parent / f"{out.name}.go"


def start(sweep: Path, out: Path, poison: str, workers: int) -> subprocess.Popen[bytes]:
    """The sweep's command in a session of its own, so that its whole tree can be found and ended."""
    environment = os.environ | {
        "EVALUATOR_POISON": poison,
        "EVALUATOR_SCORED": str(out.parent / f"{out.name}.scored"),
        "EVALUATOR_GO": str(go(out)),
        "PYTHONPATH": str(HERE),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(out)]
    command += ["--ray", "local", "--workers", str(workers), "--no-verify"]
    log = (out.parent / f"{out.name}.log").open("ab")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The live descendants of the driver."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def title(process: psutil.Process) -> str:
    """What a Ray worker calls itself (`ray::RayWorker.score`, `ray::IDLE`), or an empty string."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def end(process: subprocess.Popen[bytes], family: Sequence[psutil.Process]) -> None:
    """Kill a driver and everything that it had started."""
    for one in family:
        with contextlib.suppress(psutil.Error):
            one.kill()
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def disturbed(sweep: Path, out: Path, poison: str, kills: int, workers: int, seed: int, gap: float) -> dict[str, Any]:
    """Run the sweep to its end with `kills` kills on the way.

    Returns counts of what was killed, of the processes that may have held chunks then (`held`), and the last exit code.
    """
    dice = random.Random(seed)
    counts, held = dict.fromkeys(KINDS, 0), 0
    process = start(sweep, out, poison, workers)
    family: list[psutil.Process] = []
    try:
        while True:
            pause = time.monotonic() + dice.uniform(0.3, gap)
            while time.monotonic() < pause and process.poll() is None:
                time.sleep(0.05)
            if process.poll() is not None:
                break
            if sum(counts.values()) >= kills:
                process.wait()
                break
            family = tree(process)
            workers_alive = [(p, t) for p in family if (t := title(p)).startswith("ray::")]
            actors = [p for p, t in workers_alive if "RayWorker" in t]
            # Ray's own agents are left alone: a node ends with them, and a cluster of one node with it.
            others = [p for p, t in workers_alive if "RayWorker" not in t and "Agent" not in t]
            kind = dice.choices(KINDS, [6, 2, 1])[0]
            if kind == "driver" and actors:
                end(process, family)
                process = start(sweep, out, poison, workers)
            elif (kind == "actor" and actors) or (kind == "worker" and others):
                with contextlib.suppress(psutil.Error):
                    dice.choice(actors if kind == "actor" else others).kill()
            else:
                continue
            counts[kind] += 1
            held += len(actors) if kind == "driver" else kind == "actor"
            go(out).touch()
            print(f"kill {sum(counts.values())} of {kills}: {kind}", file=sys.stderr, flush=True)
        return {**counts, "held": held, "exit_code": process.returncode}
    finally:
        end(process, tree(process) or family)


def raw_answers(run: Path) -> pl.DataFrame:
    """All stored answers with any repetitions, with the model's folder."""
    frames = [
        pl.read_parquet(part).with_columns(pl.lit(part.parent.parent.name).alias("folder"))
        for part in sorted(run.glob("logprobs/*/*/part-*.parquet"))
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema={**ANSWERS, "folder": pl.String})


def report(run: Path) -> pl.DataFrame:
    """The run's table as `evaluator report` gives it."""
    command = [sys.executable, "-m", "evaluator", "report", str(run), "--format", "csv"]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return pl.read_csv(text, infer_schema_length=None).drop("task")


def compared(one: pl.DataFrame, other: pl.DataFrame) -> tuple[float, int]:
    """The largest difference between two tables' numbers, and how many numbers there are; all else must be the same."""
    numbers = [name for name, kind in one.schema.items() if kind.is_numeric()]
    assert one.drop(numbers).equals(other.drop(numbers)), "the tables have other rows"
    pairs = [(one[name].cast(pl.Float64), other[name].cast(pl.Float64)) for name in numbers]
    assert all((a.is_null() == b.is_null()).all() for a, b in pairs), "a value is missing in one of the tables"
    differences: list[float] = [(a - b).abs().max() or 0.0 for a, b in pairs]  # type: ignore[misc]
    return max(differences), sum(a.count() for a, _ in pairs)


def scored_again(path: Path) -> tuple[int, int, int]:
    """Chunks that engines scored to their end, how many of these held a row that was scored to its end once more later, and
    how often an engine killed its process.

    A single row is no chunk here: that is how a loaded engine is asked whether it sees ahead.
    """
    last: dict[tuple[str, str], int] = {}
    lines = path.read_text().splitlines()
    calls = [call for line in lines if len(call := line.split()) > 2]
    again: set[int] = set()
    for number, (model, *digests) in enumerate(calls):
        rows = {(model, digest) for digest in digests}
        again |= {last[row] for row in rows & last.keys()}
        last |= dict.fromkeys(rows, number)
    return len(calls), len(again), lines.count("died")


def soak(
    models: Sequence[Path], folder: Path, *, sentences: int, kills: int, workers: int = 2, gap: float = 25.0
) -> dict[str, Any]:
    """The whole experiment in `folder`. Returns the record; raises AssertionError where something was lost or doubled.

    Kills are `gap`/2 seconds apart in the mean. A model is given up when its replicas die five times in a row while they
    load, so leave the slowest model time to load between two kills.
    """
    undisturbed, sweep, poison = write_inputs(folder, models, sentences)
    go(folder / "calm").touch()
    calm = start(undisturbed, folder / "calm", poison, workers)
    assert calm.wait() == 0, (folder / "calm.log").read_text()[-3000:]
    begun = time.monotonic()
    record = disturbed(sweep, folder / "run", poison, kills, workers, seed=3, gap=gap)
    record["seconds"] = round(time.monotonic() - begun, 1)
    log = (folder / "run.log").read_text()[-3000:]
    assert record["exit_code"] == 0, log  # a row that is given up is told, and no reason to try again
    run, whole = Run.open(folder / "run"), Run.open(folder / "calm")
    failures = run.failures()
    assert failures.height == TEMPLATES * len(models), failures.to_dicts()
    assert set(failures["kind"]) == {"poisonous"}, failures.to_dicts()
    assert failures["reason"].str.contains(f"sample {sentences},").all(), failures.to_dicts()
    expected, got = (scores_of(r, r.tasks[0]).drop("task") for r in (whole, run))
    assert got.drop(NUMBERS).equals(expected.drop(NUMBERS)), f"samples are missing or doubled: {log}"
    difference = max(float((got[name] - expected[name]).abs().max()) for name in NUMBERS)  # type: ignore[arg-type]
    assert difference < ROUNDING, f"scores differ by {difference}"
    table_difference, values = compared(report(folder / "calm"), report(folder / "run"))
    assert table_difference < ROUNDING, f"the tables differ by {table_difference}"
    raw = raw_answers(folder / "run")
    repeated = raw.group_by("folder", "request", "candidate").len().filter(pl.col("len") > 1).height
    assert repeated == 0, f"{repeated} answers were stored twice"
    timings = run.timings()
    scored, again, died = scored_again(folder / "run.scored")
    # What a process had scored when it died may not have reached the driver.
    from evaluator.sweep.on_ray.pool import IN_FLIGHT  # needs Ray, which what others import of this file doesn't

    allowed = IN_FLIGHT * record.pop("held") + died
    assert again <= allowed, f"{again} chunks were scored again, only {allowed} can have been in flight"
    record |= {
        "models": len(models),
        "sentences": sentences,
        "requests_per_model": whole.timings()["requests"].sum() // len(models),
        "chunks": timings.height,
        "failures": failures.height,
        "chunks_scored_to_their_end": scored,
        "of_these_again": again,
        "of_these_again_at_most": allowed,
        "stored_twice": repeated,
        "equal_scores": got.height,
        "largest_difference": difference,
        "bitwise_equal_scores": int((got["score"] == expected["score"]).sum()),
        "equal_table_values": values,
        "largest_table_difference": table_difference,
    }
    return record


def make_models(folder: Path) -> list[Path]:
    """Three small random-weight models of the tests' own making, with one tokenizer (the poison is known by its ids)."""
    sys.path.insert(0, str(HERE.parent))
    from tests.tiny_models import tiny_model

    return [tiny_model("gpt2", folder / "models" / str(n), seed=n, n_layer=n) for n in (2, 3, 4)]


def main() -> None:
    """Run the soak with the demo's model and tiny ones and write the record."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--sentences", type=int, default=4000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fault-soak-"))
    try:
        models = [demo_model(), *make_models(folder)]
        record = soak(models, folder, sentences=options.sentences, kills=options.kills)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if (done := sum(record[kind] for kind in KINDS)) < options.kills:
        sys.exit(f"the sweep ended after {done} of {options.kills} kills: give it more --sentences")
    print(json.dumps(record, indent=1))
    write_record(options.json, record)


if __name__ == "__main__":
    main()
