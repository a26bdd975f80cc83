"""The fused masked softmax on a GPU: is it right, how fast is it, how much memory does it take.

    python benchmarks/gpu_check.py [--seconds 225] [--smoke]

Needs torch and triton alone; all numbers are random. Ends within 4 minutes and prints its table last; the same numbers go
into gpu_check.json under $OUT (else benchmarks/results). `--smoke` runs tiny shapes in Triton's interpreter on a CPU: it
checks this program, not the kernel's speed.

Compared with the two ways that torch offers: logits, log_softmax and gather, eager and compiled. The roofline is the
larger of arithmetic over this chip's own matrix-product rate (in float32: without TF32) and bytes over its copy rate, both
measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SMOKE = "--smoke" in sys.argv
if SMOKE:
    os.environ["TRITON_INTERPRET"] = "1"  # must stand before the first import of triton

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "kernels"))

import torch  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402

from evaluator_kernels.problem import MaskedLogProbs  # noqa: E402
from evaluator_kernels.triton_kernel import triton_log_probs  # noqa: E402

DEVICE = "cpu" if SMOKE else "cuda"
WIDTH, CANDIDATES = (24, 2) if SMOKE else (768, 4)
VOCABULARIES = (70, 130) if SMOKE else (30_522, 250_002, 901_629)  # BERT, XLM-R, XLM-V
ROWS = (3,) if SMOKE else (64, 8192, 512, 2048, 128, 1024, 256, 4096)  # in order of interest, while time lasts
TYPES = (torch.bfloat16, torch.float32)
TOLERANCE = {torch.bfloat16: 1e-4, torch.float32: 1e-4}
"""Largest |Δ log P| from float64 on the same (rounded) inputs: bfloat16 products are exact in float32."""


@dataclass
class Case:
    """One problem size: milliseconds, MiB beyond the inputs, share of the roofline; None where a way ran out of memory."""

    dtype: str
    vocabulary: int
    rows: int
    ms: dict[str, float | None] = field(default_factory=dict)
    mib: dict[str, float | None] = field(default_factory=dict)
    roofline_ms: float = 0.0
    bound: str = ""


@dataclass
class Report:
    """Everything that was measured."""

    device: str
    versions: dict[str, str]
    copy_gb_s: float = 0.0
    matmul_tflop_s: dict[str, float] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def torch_log_probs(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor) -> Tensor:
    """What one writes without a kernel."""
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return torch.log_softmax(logits.float(), dim=-1).gather(1, candidates)


def make(rows: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random hidden states, weight, candidates and bias with logits of a trained model's size."""
    hidden = torch.randn(rows, WIDTH, device=DEVICE, dtype=dtype)
    weight = torch.randn(vocabulary, WIDTH, device=DEVICE, dtype=dtype) * (4 / WIDTH**0.5)
    candidates = torch.randint(0, vocabulary, (rows, CANDIDATES), device=DEVICE)
    return hidden, weight, candidates, torch.randn(vocabulary, device=DEVICE, dtype=dtype)


def synchronize() -> None:
    if not SMOKE:
        torch.cuda.synchronize()


def milliseconds(call: Callable[[], object], *, seconds: float = 0.25) -> float:
    """Median device time of a call that is warm, over at least 3 calls and about `seconds`."""
    call()
    synchronize()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < seconds and len(times) < 200):
        if SMOKE:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
            continue
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # about 1 ms in which everything is queued: device time, not launch time
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


def extra_mib(call: Callable[[], object]) -> float:
    """Peak memory of a call beyond what was allocated before it."""
    if SMOKE:
        return 0.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure_ceilings(report: Report) -> None:
    """This chip's copy rate (read + written bytes) and matrix-product rates, on random numbers."""
    size = 1 << 10 if SMOKE else 1 << 28
    source = torch.randn(size, device=DEVICE)
    target = torch.empty_like(source)
    report.copy_gb_s = 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e6
    side = 64 if SMOKE else 8192
    for dtype in TYPES:
        a, b = (torch.randn(side, side, device=DEVICE, dtype=dtype) for _ in range(2))
        rate = 2 * side**3 / milliseconds(lambda a=a, b=b: a @ b) / 1e9
        report.matmul_tflop_s[str(dtype).removeprefix("torch.")] = rate


def exact(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor) -> MaskedLogProbs:
    """Log-probabilities in float64, the vocabulary in blocks."""
    blocks = [
        hidden.double() @ weight[start : start + 65_536].double().T + bias[start : start + 65_536].double()
        for start in range(0, len(weight), 65_536)
    ]
    logsumexp = torch.stack([block.logsumexp(1) for block in blocks], 1).logsumexp(1)
    chosen = (hidden.double()[:, None] * weight[candidates].double()).sum(2) + bias[candidates].double()
    return MaskedLogProbs(chosen - logsumexp[:, None], logsumexp)


def check(report: Report) -> None:
    """Largest error against float64 for every type, both float32 precisions and sizes that divide nothing evenly."""
    for dtype in TYPES:
        for vocabulary in VOCABULARIES:
            for rows in (1, 5) if SMOKE else (1, 77, 500):
                problem = make(rows, vocabulary, dtype)
                want = exact(*problem)
                for precision in ("tf32x3", "ieee") if dtype == torch.float32 else ("tf32x3",):
                    got = triton_log_probs(*problem, precision=precision)
                    error = max(
                        float((a.double() - b).abs().nan_to_num(nan=float("inf")).max()) for a, b in zip(got, want, strict=True)
                    )
                    report.errors.append(
                        {
                            "dtype": str(dtype).removeprefix("torch."),
                            "precision": precision,
                            "vocabulary": vocabulary,
                            "rows": rows,
                            "error": error,
                            "right": error <= TOLERANCE[dtype],
                        }
                    )


def measure(rows: int, vocabulary: int, dtype: torch.dtype, report: Report) -> Case:
    """Time and memory of the three ways on one problem."""
    problem = make(rows, vocabulary, dtype)
    compiled = torch.compile(torch_log_probs, backend="eager" if SMOKE else "inductor", dynamic=False)
    ways: dict[str, Callable[[], object]] = {
        "triton": lambda: triton_log_probs(*problem),
        "torch": lambda: torch_log_probs(*problem),
        "compiled": lambda: compiled(*problem),
    }
    name = str(dtype).removeprefix("torch.")
    case = Case(name, vocabulary, rows)
    for way, call in ways.items():
        try:
            case.ms[way] = milliseconds(call)
            case.mib[way] = extra_mib(call)
        except torch.OutOfMemoryError:
            case.ms[way] = case.mib[way] = None
        if not SMOKE:
            torch.cuda.empty_cache()
    arithmetic = 2 * rows * vocabulary * WIDTH / report.matmul_tflop_s[name] / 1e9
    moved = (problem[0].nbytes + problem[1].nbytes + problem[3].nbytes) / report.copy_gb_s / 1e6
    case.roofline_ms, case.bound = max((arithmetic, "arithmetic"), (moved, "memory"))
    return case


def sizes() -> Iterator[tuple[int, int, torch.dtype]]:
    """Problem sizes, the most telling first."""
    for rows in ROWS:
        for dtype in TYPES:
            for vocabulary in VOCABULARIES:
                yield rows, vocabulary, dtype


def table(report: Report) -> str:
    """The report as text."""
    rates = ", ".join(f"{name} {rate:.0f} TFLOP/s" for name, rate in report.matmul_tflop_s.items())
    lines = [
        f"{report.device}; " + ", ".join(f"{name} {number}" for name, number in report.versions.items()),
        f"ceilings measured here: copy {report.copy_gb_s:.0f} GB/s, matrix product {rates}",
    ]
    wrong = [e for e in report.errors if not e["right"]]
    for dtype, precision in dict.fromkeys((e["dtype"], e["precision"]) for e in report.errors):
        worst = max(e["error"] for e in report.errors if (e["dtype"], e["precision"]) == (dtype, precision))
        lines.append(f"largest error against float64: {dtype} ({precision}) {worst:.1e}")
    lines += [f"WRONG: {e}" for e in wrong]
    lines += [f"left out: {text}" for text in report.left_out]
    lines += [
        "",
        f"{'dtype':9}{'V':>8}{'N':>6} | {'triton':>9}{'torch':>9}{'compiled':>9} ms | "
        f"{'triton':>8}{'torch':>9}{'compiled':>9} MiB | {'roofline':>8} ms | share of roofline",
    ]

    def number(value: float | None, width: int, digits: int) -> str:
        return f"{'OOM' if value is None else f'{value:.{digits}f}':>{width}}"

    for case in sorted(report.cases, key=lambda c: (c.dtype, c.vocabulary, c.rows)):
        own = case.ms["triton"]
        share = f"{case.roofline_ms / own:.0%}" if own else "-"
        times = "".join(number(case.ms[way], 9, 3) for way in ("triton", "torch", "compiled"))
        memory = number(case.mib["triton"], 8, 1) + "".join(number(case.mib[w], 9, 0) for w in ("torch", "compiled"))
        lines.append(
            f"{case.dtype:9}{case.vocabulary:>8}{case.rows:>6} | {times} ms | {memory} MiB | "
            f"{case.roofline_ms:>8.3f} ms | {share} ({case.bound})"
        )
    return "\n".join(lines)


def main() -> int:
    """Run everything that fits into the time; exit code 1 if a number was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=225, help="time after which no new size is begun")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on a CPU, in Triton's interpreter")
    arguments = parser.parse_args()
    if not SMOKE and not torch.cuda.is_available():
        parser.error("no CUDA device here: use --smoke to try this program on a CPU")
    began = time.perf_counter()
    torch.manual_seed(0)
    name = "CPU (interpreter)" if SMOKE else torch.cuda.get_device_name()
    report = Report(name, {"torch": torch.__version__, "triton": triton.__version__})
    measure_ceilings(report)
    check(report)
    slowest = 0.0
    for rows, vocabulary, dtype in sizes():
        start = time.perf_counter()
        if start - began + slowest > arguments.seconds:
            report.left_out.append(f"N {rows}, V {vocabulary}, {dtype} (no time)")
            continue
        report.cases.append(measure(rows, vocabulary, dtype, report))
        slowest = max(slowest, time.perf_counter() - start)
        print(f"{time.perf_counter() - began:6.0f} s: N {rows}, V {vocabulary}, {dtype}", file=sys.stderr, flush=True)
    folder = Path(os.environ.get("OUT", ROOT / "benchmarks" / "results"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_check.json").write_text(json.dumps(asdict(report), indent=1))
    print(table(report))
    return 0 if all(e["right"] for e in report.errors) else 1


if __name__ == "__main__":
    sys.exit(main())
