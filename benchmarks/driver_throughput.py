"""How many requests a second the program itself takes, measured with an engine that answers at once.

    python benchmarks/driver_throughput.py [--cases gest-1 gest-n eurogest] [--models N] [--limit N] [--ray N ...]
        [--before CHECKOUT] [--json FILE]

EVALUATOR_DATA points at the data sets. Models are a configuration, a few random weights and SmolLM2's tokenizer: `gest-1` asks
GEST of models with one tokenizer, `gest-n` of models whose tokenizers all differ, `eurogest` EuroGEST of models whose
tokenizers differ. Counted are seconds of CPU, which other processes on the machine hardly change: `encode` (here and,
with their imports, in encoding processes), `worker` (a replica's methods), `driver` (the rest) and `loop` (the part of that
while models are scored), and the peaks of memory of this process and of the largest encoding process. Left out are what this
process imports before the run begins (the modules that prepare and score, without torch and transformers; what it imports
later counts as the driver's), and that a tokenizer is seen for the first time on a machine (a second each). `per_second` has
requests by seconds of the driver, and of a worker core (`encode` and `worker`).

With `--ray N ...` the same is swept on a Ray cluster of one machine with N logical CPUs, for each N: `wall` seconds from when
it is joined to the end, encoding included, the driver's share of them, and the largest worker's peak. `--before CHECKOUT` runs
each case with another checkout's environment (its `.venv`) too.
"""

import argparse
import importlib.util
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from output import benchmark_parser, write_record

from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Head, Row, Workload

CASES = {"gest-1": ("gest", 40), "gest-n": ("gest", 40), "eurogest": ("eurogest", 4)}
"""Case → the task, and how many models are asked it."""
ENGINE = "driver_throughput:NullEngine"


class NullEngine(Engine):
    """Says log P = -1 / (1 + token) of every token."""

    name = "null"
    summary = "answers at once"
    heads = frozenset[Head]({"causal", "masked"})
    dtypes = ("float32",)
    devices = ("cpu",)
    reads_weights = False
    comparable = False

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        self.device_kind = "cpu"

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """From each token's number."""
        return [np.array([-1 / (1 + token) for _, token in row.lookups]) for row in rows]

    def close(self) -> None:
        """Nothing is held."""

    if hasattr(Engine, "describe"):  # an older checkout's engines must have it

        def describe(self) -> Any:
            """Nothing is known of it."""
            return types.SimpleNamespace(details={})


def make_models(folder: Path, count: int, *, alike: bool) -> list[Path]:
    """Folders of Llamas with SmolLM2's tokenizer, each with a token of its own unless they are `alike`."""
    import torch
    import transformers

    from evaluator.demo import demo_model
    from evaluator_serving.models.resolving import resolve_here

    tokenizer = transformers.AutoTokenizer.from_pretrained(resolve_here(str(demo_model())).path)
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2}
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 49_152 + 64}
    made = []
    for number in range(count):
        torch.manual_seed(number)
        config = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True, max_position_embeddings=8192)
        path = folder / f"m{number}"
        transformers.LlamaForCausalLM(config).save_pretrained(path)
        if not alike:
            tokenizer.add_tokens([f"\U0001f4a0{number}"])
        tokenizer.save_pretrained(path)
        made.append(path)
    return made


def one(case: str, models: Sequence[str], limit: int | None, ray: int) -> dict[str, Any]:
    """Run a case in this process (or sweep it on so many Ray workers). Returns what it took."""
    from evaluator.tasks import task
    from evaluator_serving.engine import EngineOptions as Options

    package = "evaluator.scoring" if importlib.util.find_spec("evaluator.scoring") else "evaluator.run"  # its older name
    driver, spec_module, worker_module = (importlib.import_module(f"{package}.{name}") for name in ("driver", "spec", "worker"))
    specs = tuple(spec_module.ModelSpec(model, ENGINE, options=Options(device="cpu")) for model in models)
    with tempfile.TemporaryDirectory() as out:
        spec = spec_module.RunSpec(specs, (task(CASES[case][0]),), Path(out) / "run", limit=limit, verify=False)
        steps = ["fetch", "load", "score", "close"] if not ray else []  # on Ray in other processes
        worker = _timed(worker_module.Worker, steps)
        encode = _timed(_encodings(), ["encode"])
        score = _timed(driver, ["score_models"])
        begun = time.process_time()
        if ray:
            outcome, score = _sweep(spec, ray)
        else:
            outcome = driver.execute(spec)
        used, peak = time.process_time() - begun, _peak_mb()
        requests = sum(len(outcome.run.done(name)) for name in outcome.run.models)
        files = sum(1 for path in outcome.run.path.rglob("*") if path.is_file())
        largest = outcome.run.timings()["host_memory"].max()
    assert not outcome.errors, outcome.errors
    apart = resource.getrusage(resource.RUSAGE_CHILDREN)
    encoding = encode.cpu + apart.ru_utime + apart.ru_stime
    seconds = {"driver": used - encode.cpu - worker.cpu}
    if not ray:  # of which the processes are not this one's own children, and others are
        seconds |= {"encode": encoding, "worker": worker.cpu}
    found: dict[str, Any] = {
        "requests": requests,
        "files": files,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "per_second": {"driver": round(requests / seconds["driver"])},
        "peak_mb": {"driver": peak},
    }
    if ray:
        found |= {"wall": round(score.wall, 1), "driver_share": round(score.cpu / score.wall, 3)}
        found["peak_mb"]["worker"] = largest >> 20
    else:
        found["seconds"]["loop"] = round(score.cpu - worker.cpu, 2)
        found["per_second"]["worker_core"] = round(requests / (encoding + worker.cpu))
        found["peak_mb"]["encoding_process"] = apart.ru_maxrss // 1024
    return found


def _sweep(spec: Any, cores: int) -> tuple[Any, "Spent"]:
    """The outcome on a cluster of so many logical CPUs, and what it took this process from when it had joined to the end."""
    from ray.cluster_utils import Cluster

    from evaluator.sweep import driver as sweeping
    from evaluator.sweep.on_ray import cluster

    connect, disconnect, total = cluster.connect, cluster.disconnect, Spent()

    def joined(*arguments: Any) -> None:
        connect(*arguments)
        total.cpu, total.wall = -time.process_time(), -time.perf_counter()

    def left() -> None:
        total.cpu, total.wall = total.cpu + time.process_time(), total.wall + time.perf_counter()
        disconnect()

    cluster.connect, cluster.disconnect = joined, left
    machine = Cluster(initialize_head=True, head_node_args={"num_cpus": cores})
    try:
        return sweeping.sweep(spec, sweeping.SweepOptions(ray=machine.address)), total
    finally:
        machine.shutdown()


def _encodings() -> Any:
    """The module that encodes; an older checkout may not have it."""
    try:
        return importlib.import_module("evaluator.scoring.encodings")
    except ImportError:
        return types.SimpleNamespace(encode=None)


def _peak_mb() -> int:
    """The most memory that this process has held, in MB; what its parent held does not count."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


@dataclass(slots=True)
class Spent:
    """Seconds of CPU and of time."""

    cpu: float = 0.0
    wall: float = 0.0


def _timed(owner: Any, names: Sequence[str]) -> Spent:
    """Have these functions' seconds counted."""
    total = Spent()

    def counted(plain: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            begun, cpu = time.perf_counter(), time.process_time()
            try:
                return plain(*arguments, **options)
            finally:
                total.wall += time.perf_counter() - begun
                total.cpu += time.process_time() - cpu

        return call

    for name in names:
        setattr(owner, name, counted(getattr(owner, name)))
    return total


def know_tokenizers(models: Sequence[str]) -> None:
    """Have each tokenizer seen once on this machine."""
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.models.resolving import resolve_here

    for model in models:
        encoder_for(resolve_here(model))


def main() -> None:
    """Make the models, and run each case in a process of its own."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--models", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--ray", type=int, nargs="+", default=[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--know", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.know:
        know_tokenizers(asked.know)
        return
    if asked.one:
        print(json.dumps(one(asked.cases[0], asked.one, asked.limit, asked.ray[0])))
        return
    here = Path(__file__).resolve()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    programs = {"": sys.executable, **({" before": str(asked.before / ".venv" / "bin" / "python")} if asked.before else {})}
    found: dict[str, Any] = {}
    for case in asked.cases:
        with tempfile.TemporaryDirectory() as folder:
            models = make_models(Path(folder), asked.models or CASES[case][1], alike=case == "gest-1")
            for program in programs.values():  # a checkout knows what it has seen itself
                subprocess.run([program, str(here), "--know", *map(str, models)], env=environment, check=True)
            for ray, (side, program) in itertools.product(asked.ray, programs.items()):
                command = [program, str(here), "--cases", case, "--ray", str(ray)]
                command += ["--limit", str(asked.limit)] if asked.limit else []
                command += ["--one", *map(str, models)]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                name = f"{case}{f' on {ray} Ray workers' if ray else ''}{side}"
                found[name] = {"models": len(models), **json.loads(done.stdout.splitlines()[-1])}
                print(name, json.dumps(found[name]), flush=True)
    if asked.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        write_record(asked.json, {"machine": machine, "limit": asked.limit, "cases": found})


if __name__ == "__main__":
    main()
