"""Shared by benchmarks of engines: sentences, and backends in separate processes, interleaved (see `evaluator.bench`).

A benchmark called with `--serve` serves one of its backends.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from evaluator.bench.backends import CEILINGS
from evaluator.bench.counter import Counter
from evaluator.bench.job import BenchJob
from evaluator.bench.measure import interleave
from evaluator.bench.messages import command_stream, measure_call, send
from evaluator.bench.process import BackendProcess
from evaluator_serving.devices import bfloat16_units
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request

Counts = TypeVar("Counts", bound=Counter)
Numbers = list[float]
Score = Callable[[Any], Numbers]


@dataclass(frozen=True, slots=True)
class Side:
    """A way of a benchmark, the model that it loads, and the threads that it may use; it travels as JSON."""

    name: str
    model: str
    threads: int

    def json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def sentences(rows: int) -> list[str]:
    """Sentences spread evenly over GEST where EVALUATOR_DATA points at it, else over the demo set that the package ships."""
    folder = os.environ.get("EVALUATOR_DATA")
    demo = Path(__file__).resolve().parents[1] / "evaluator" / "datasets" / "demo"
    file = Path(folder) / "gest" / "gest.csv" if folder else next(demo.glob("*.csv"))
    column = pl.read_csv(file)["sentence"].to_list()
    step = max(1, len(column) // rows)
    return [str(sentence) for sentence in column[::step][:rows]]


def processor() -> dict[str, str]:
    """This machine's CPU, and its units for products of bfloat16."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "bfloat16": bfloat16_units() or "no units",
    }


# --- a way's process ------------------------------------------------------------------------------------------------


def serve(opened: Mapping[str, Callable[[str, Counts], Score]], counter: Counts, few: Any) -> None:
    """Load the way that is asked for, say so, then score each line's inputs. `few` inputs are scored before."""
    with command_stream() as (lines, answers):
        side = Side(**json.loads(next(lines)))
        begun = time.perf_counter()
        score = opened[side.name](side.model, counter)
        score(few)  # the first pass allocates and compiles
        send(answers, {"load_s": time.perf_counter() - begun})
        for line in lines:
            inputs = json.loads(line)
            send(answers, measure_call(counter, lambda inputs=inputs: (score(inputs), {})))


def opened_engine(
    name: str, source: ModelSource, options: EngineOptions, known: Sequence[Request], counter: Counter
) -> Callable[[Sequence[Request]], list[list[float]]]:
    """Load an engine for requests such as `known`, and count in it. What comes back asks it by the way that a run takes.

    It gives each request's log P by candidate.
    """
    from evaluator_serving.answers import assemble
    from evaluator_serving.chunks import chunks, merge
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.opening import open_engine

    encoder = encoder_for(source)
    engine = open_engine(name, source, options, merge([encoder.encode(request) for request in known]).rows)
    counter.of_engine(engine, source.config.get_text_config().vocab_size)
    tokens = engine.chunk_tokens(source.parameters, engine.device_kind)

    def score(requests: Sequence[Request]) -> list[list[float]]:
        encoded = [encoder.encode(request) for request in requests]
        found = {
            answer.request: [sum(candidate) for candidate in answer.logprobs]
            for chunk in chunks(encoded, tokens=tokens)
            for answer in assemble(chunk, engine.score(chunk.rows))
        }
        return [found[item.request] for item in encoded]

    return score


# --- the parent -----------------------------------------------------------------------------------------------------


def interleaved(
    program: str, ways: Sequence[str], model: str, threads: int, parts: Sequence[Sequence[Any]], *, device: str = "auto"
) -> tuple[list[BackendProcess[Side]], list[dict[str, float]]]:
    """Every way of a program on every part of the inputs; before each this machine's rates (see `Ceilings.measure`)."""
    machine = BackendProcess.start(BenchJob(CEILINGS, engine="", model="", task="", limit=0, device=device, threads=threads))
    workers: list[BackendProcess[Side]] = []
    try:
        for way in ways:
            offline = {"HF_HUB_OFFLINE": "1"}
            workers.append(BackendProcess.start(Side(way, model, threads), (program, "--serve"), offline))
            tell(workers[-1].status)
        rates = interleave(workers, [json.dumps(list(part)) for part in parts], machine.measure, tell)
    finally:
        for worker in (*workers, machine):
            worker.close()
    return workers, rates


def peaks(rates: Sequence[Mapping[str, float]], way: str = "") -> list[float]:
    """GFLOP/s of large matrix products, in bfloat16 for a way that multiplies so where the machine has units for it."""
    name = "bfloat16_gflop_s" if way.endswith(("bfloat16", "bf16x2")) else "matrix_gflop_s"
    return [rate.get(name, rate["matrix_gflop_s"]) for rate in rates]


def tell(line: str) -> None:
    """What goes on."""
    print(line, file=sys.stderr, flush=True)


def cut(inputs: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """So many parts of about the same size."""
    size = -(-len(inputs) // parts)
    return [inputs[start : start + size] for start in range(0, len(inputs), size)]


def numbers(worker: BackendProcess[Side]) -> Numbers:
    """All that it gave, in the order of the parts."""
    return [number for _, answer in sorted(worker.slices.items()) for number in answer["numbers"]]
