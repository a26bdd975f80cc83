"""Cost of starting a model: thirty tiny models on two Ray workers, with and without reusing processes.

    python benchmarks/start_costs.py [--models 30] [--repeats 2] [--json FILE] [--note TEXT]

Models have random weights of several families, in the engines that the program would choose: masked models in onnx, generative
ones in vllm (if installed) and transformers. There is little to score, so starting dominates. Each repetition runs both modes:

- `reused`: the default, a process loads the next model when the last one's memory is free;
- `process`: one process per model (in the driver, `Pool.reassign` always refuses).

Reported are medians of the seconds from requesting a replica to its first stored answers, by part (from run.json), and the
pool's and the whole sweep's seconds per model. The scores of both modes must be equal.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from output import benchmark_parser, write_record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WAYS = ("process", "reused")
AIM = 0.5
WORKERS = 2
MASKED = ("bert", "roberta", "electra", "distilbert")
GENERATIVE = ("gpt2", "llama", "gemma2")
VLLM_SHAPE = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
"""What vLLM's CPU attention takes."""
SENTENCES = ("I cook", "I work", "I always cry", "I am strong", "I am not weak", "I lead", "I feel happy", "I am tired")


@dataclass(frozen=True)
class Entry:
    """One model of the sweep."""

    name: str
    family: str
    engine: str
    shape: dict[str, Any]


def entries(count: int) -> list[Entry]:
    """The models: of five, two are masked ones in onnx, two generative ones in transformers, one is a Llama in vllm."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    found = []
    for i in range(count):
        kind = i % 5
        if kind < 2:
            found.append(Entry(f"m{i}", MASKED[(i // 5 * 2 + kind) % len(MASKED)], "onnx", {}))
        elif kind == 4 and has_vllm:
            found.append(Entry(f"m{i}", "llama", "vllm", VLLM_SHAPE))
        else:
            found.append(Entry(f"m{i}", GENERATIVE[i % len(GENERATIVE)], "transformers", {}))
    return found


def write_inputs(folder: Path, models: Sequence[Entry]) -> Path:
    """Models, sentences and SWEEP.toml under `folder`."""
    from evaluator_serving.models.config import quiet
    from tests.tiny_models import tiny_model

    quiet()
    rows = [f"{text}.,{i % 16 + 1}" for i, text in enumerate(SENTENCES)]
    (folder / "own.csv").write_text("\n".join(["sentence,stereotype", *rows]) + "\n")
    lines = ['tasks = ["gest"]', f'samples = "{folder / "own.csv"}"']
    for seed, model in enumerate(models):
        path = tiny_model(model.family, folder / "models" / model.name, seed=seed, **model.shape)
        lines += ["[[models]]", f'model = "{path}"', f'name = "{model.name}"', f'engine = "{model.engine}"']
    (folder / "SWEEP.toml").write_text("\n".join(lines) + "\n")
    return folder / "SWEEP.toml"


def run_once(way: str, path: Path, out: Path) -> dict[str, Any]:
    """One sweep, driven from this process; its seconds, without and with the driver's own preparation."""
    from evaluator.scoring import loop
    from evaluator.sweep import driver
    from evaluator.sweep.config import read_sweep
    from evaluator.sweep.on_ray import pool

    if way == "process":
        pool.Pool.reassign = lambda self, active, state, *, free: None  # type: ignore[method-assign]
    inside: list[float] = []
    execute = loop.Loop.execute

    def timed(self: loop.Loop, models: Sequence[Any]) -> dict[str, Exception]:
        begun = time.perf_counter()
        errors = execute(self, models)
        inside.append(time.perf_counter() - begun)
        return errors

    loop.Loop.execute = timed  # type: ignore[method-assign]
    begun = time.perf_counter()
    spec = read_sweep(path, out=out)
    outcome = driver.sweep(spec, driver.SweepOptions(ray="local", workers=WORKERS))
    if outcome.errors:
        raise SystemExit(f"{way}: models failed: {outcome.errors}")
    return {"sweep": time.perf_counter() - begun, "scheduling": inside[0]}


def in_child(way: str, path: Path, out: Path) -> dict[str, Any]:
    """The same in a driver of its own; with the starts that run.json tells of."""
    # Each with a cache of its own: the onnx engine exports every model once.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "EVALUATOR_CACHE": f"{out}-cache"}
    command = [sys.executable, __file__, "--once", way, str(path), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    times = json.loads(done.stdout.strip().splitlines()[-1])
    record = json.loads((out / "run.json").read_text(encoding="utf8"))
    starts = {name: entry["starts"] for name, entry in record["models"].items()}
    if any(start["reused_process"] for each in starts.values() for start in each) != (way == "reused"):
        raise SystemExit(f"{way}: a wrong number of processes was used again")
    return {**times, "starts": starts}


def same_scores(left: Path, right: Path) -> float:
    """Largest difference of two runs' scores."""
    from evaluator.store.run import Run
    from evaluator.tasks.stored import scores_of

    keys = ["model", "template", "sample"]
    (one, other) = (scores_of(run, run.tasks[0]).sort(keys) for run in map(Run.open, (left, right)))
    if one.is_empty() or not one.select(keys).equals(other.select(keys)):
        raise SystemExit("the two ways have not scored the same")
    return float((one["score"] - other["score"]).abs().max())  # type: ignore[arg-type]


def summary(runs: Sequence[dict[str, Any]], models: Sequence[Entry]) -> dict[str, Any]:
    """Medians of one way's repetitions."""
    from evaluator.reports.starts import Starts

    def medians(chosen: set[str]) -> dict[str, float]:
        starts = [start for run in runs for name, each in run["starts"].items() if name in chosen for start in each]
        told = [Starts.of([start]) for start in starts]
        parts = {part: statistics.median(one.parts.get(part, 0.0) for one in told) for part in told[0].parts}
        return {"start": statistics.median(one.seconds for one in told), **parts}

    engines = {engine: medians({m.name for m in models if m.engine == engine}) for engine in sorted({m.engine for m in models})}
    every = [start for run in runs for each in run["starts"].values() for start in each]
    mean = statistics.fmean(Starts.of([start]).seconds for start in every)
    return {
        "mean_seconds_a_start": mean,
        "median_seconds": {"all": medians({m.name for m in models}), **engines},
        "scheduling_seconds_a_model": statistics.median(run["scheduling"] / len(models) for run in runs),
        "sweep_seconds_a_model": statistics.median(run["sweep"] / len(models) for run in runs),
        "starts": len(every),
        "reused": sum(start["reused_process"] for start in every),
    }


def compare(models: Sequence[Entry], repeats: int, note: str) -> Iterator[dict[str, Any]]:
    """Both ways in turn; after every repetition, the record of all so far."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = write_inputs(folder, models)
        for turn in range(repeats):
            outs = {way: folder / f"run-{way}-{turn}" for way in WAYS}
            for way, out in outs.items():
                runs[way].append(in_child(way, path, out))
                print(f"{way} {turn}: {runs[way][-1]['sweep']:.0f} s", file=sys.stderr, flush=True)
            worst = max(worst, same_scores(*outs.values()))
            yield record_of(models, runs, worst, note)


def record_of(models: Sequence[Entry], runs: dict[str, list[dict[str, Any]]], worst: float, note: str) -> dict[str, Any]:
    """All that is written down."""
    from evaluator.bench.measure import versions

    sides = {way: summary(runs[way], models) for way in WAYS}
    keys = ("mean_seconds_a_start", "scheduling_seconds_a_model", "sweep_seconds_a_model")
    ratios = {key: sides["reused"][key] / sides["process"][key] for key in keys}
    return {
        "models": {engine: sum(m.engine == engine for m in models) for engine in sorted({m.engine for m in models})},
        "workers": WORKERS,
        "repeats": len(runs[WAYS[0]]),
        "largest_score_difference": worst,
        **sides,
        "reused_over_process": ratios,
        "aim": AIM,
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "note": note},
        "versions": versions(),
    }


def table(record: dict[str, Any]) -> str:
    """The record as text."""
    lines = [f"{'':26}{'one process per model':>18}{'re-used':>10}"]
    for engine in record["process"]["median_seconds"]:
        for part in record["process"]["median_seconds"][engine]:
            values = [record[way]["median_seconds"][engine].get(part, 0.0) for way in WAYS]
            lines.append(f"{engine + ' ' + part:26}{values[0]:>16.2f} s{values[1]:>8.2f} s")
    for key, ratio in record["reused_over_process"].items():
        lines.append(f"{key:26}{record['process'][key]:>15.2f} s{record['reused'][key]:>8.2f} s   {ratio:.2f} (aim {AIM})")
    return "\n".join(lines)


def main() -> int:
    """Compare both ways, or (`--once`) run one of them."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--note", default="", help="what a reader must know of the machine")
    parser.add_argument("--once", nargs=3, metavar=("WAY", "SWEEP", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        way, path, out = arguments.once
        print(json.dumps(run_once(way, Path(path), Path(out))))
        return 0
    for record in compare(entries(arguments.models), arguments.repeats, arguments.note):
        write_record(arguments.json, record)
        print(table(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
