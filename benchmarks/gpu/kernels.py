"""Correctness, speed and memory of the fused masked softmax. Needs torch and triton only.

Compared with logits, log_softmax and gather in torch, eager and compiled. The roofline is the larger of arithmetic over the
measured matrix-product rate (float32: the better of plain products and three of TF32) and bytes over the measured copy rate;
the work is counted in `roofline.py`. On a CPU tiny shapes run in Triton's interpreter, which tests this program only.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu.roofline import Ceilings, roofline, work
from gpu.section import Part, Section
from torch import Tensor

from evaluator_kernels.problem import MaskedLogProbs
from evaluator_kernels.triton_kernel import processors, triton_log_probs, vocabulary_splits

SMOKE = os.environ.get("TRITON_INTERPRET") == "1"  # stands before the first import of triton
DEVICE = "cpu" if SMOKE else "cuda"
WIDTH, CANDIDATES = (24, 2) if SMOKE else (768, 4)
VOCABULARIES = (70, 130) if SMOKE else (30_522, 250_002, 901_629)  # BERT, XLM-R, XLM-V
ROWS = (3,) if SMOKE else (64, 8192, 512, 2048, 128, 1024, 256, 4096)  # in order of interest, while time lasts
TYPES = (torch.bfloat16, torch.float32)
RESERVE = 5.0
"""Seconds that are left when the last size is begun."""
TOLERANCE = {torch.bfloat16: 1e-4, torch.float32: 1e-4}
"""Largest |Δ log P| from float64 on the same (rounded) inputs: bfloat16 products are exact in float32."""


@dataclass
class Case:
    """One problem size: milliseconds, MiB beyond the inputs (None where a way ran out of memory), and what it must take."""

    dtype: str
    vocabulary: int
    rows: int
    ms: dict[str, float | None] = field(default_factory=dict)
    mib: dict[str, float | None] = field(default_factory=dict)
    roofline_ms: float = 0.0
    bound: str = ""
    work: dict[str, int] = field(default_factory=dict)


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


def measure_ceilings() -> Ceilings:
    """On random numbers."""
    size = 1 << 10 if SMOKE else 1 << 28
    source = torch.randn(size, device=DEVICE)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e6
    side = 64 if SMOKE else 8192
    rates = {}
    for dtype in TYPES:
        a, b = (torch.randn(side, side, device=DEVICE, dtype=dtype) for _ in range(2))
        rates[str(dtype).removeprefix("torch.")] = 2 * side**3 / milliseconds(partial(torch.mm, a, b)) / 1e9
    if not SMOKE:
        torch.backends.cuda.matmul.allow_tf32 = True
        a, b = (torch.randn(side, side, device=DEVICE) for _ in range(2))
        rates["tf32"] = 2 * side**3 / milliseconds(partial(torch.mm, a, b)) / 1e9
        torch.backends.cuda.matmul.allow_tf32 = False
    return Ceilings(copy, rates)


def exact(hidden: Tensor, weight: Tensor, candidates: Tensor, bias: Tensor) -> MaskedLogProbs:
    """Log-probabilities in float64, the vocabulary in blocks."""
    blocks = [
        hidden.double() @ weight[start : start + 65_536].double().T + bias[start : start + 65_536].double()
        for start in range(0, len(weight), 65_536)
    ]
    logsumexp = torch.stack([block.logsumexp(1) for block in blocks], 1).logsumexp(1)
    chosen = (hidden.double()[:, None] * weight[candidates].double()).sum(2) + bias[candidates].double()
    return MaskedLogProbs(chosen - logsumexp[:, None], logsumexp)


def errors() -> Iterator[tuple[str, str, int, int, float]]:
    """(type, precision, vocabulary, rows, largest error against float64), both float32 precisions and uneven sizes."""
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
                    yield str(dtype).removeprefix("torch."), precision, vocabulary, rows, error


def measure(rows: int, vocabulary: int, dtype: torch.dtype, ceilings: Ceilings) -> Case:
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
    splits = vocabulary_splits(rows, vocabulary, processors(problem[0].device))
    asked = work(rows, vocabulary, WIDTH, CANDIDATES, size=problem[0].element_size(), splits=splits)
    case.work = asdict(asked)
    case.roofline_ms, case.bound = roofline(asked, ceilings, name)
    return case


def sizes() -> Iterator[tuple[int, int, torch.dtype]]:
    """Problem sizes, the most telling first."""
    for rows in ROWS:
        for dtype in TYPES:
            for vocabulary in VOCABULARIES:
                yield rows, vocabulary, dtype


def run(section: Section, scratch: Path) -> None:
    """All parts; sizes that no time is left for are named."""
    torch.manual_seed(0)
    with section.part("right") as part:
        for dtype, precision, vocabulary, rows, error in errors():
            what = f"{dtype} ({precision}), V {vocabulary}, N {rows}: error against float64"
            part.check(what, error, TOLERANCE[getattr(torch, dtype)])
    with section.part("times") as part:
        ceilings = measure_ceilings()
        part.measured(ceilings=asdict(ceilings))
        _times(section, part, ceilings)


def _times(section: Section, part: Part, ceilings: Ceilings) -> None:
    """As many sizes as there is time for, the most telling first."""
    cases: list[dict[str, Any]] = []
    left_out: list[str] = []
    part.measured(cases=cases, left_out=left_out)
    slowest = 0.0
    for rows, vocabulary, dtype in sizes():
        if section.left() < slowest + RESERVE:
            left_out.append(f"N {rows}, V {vocabulary}, {dtype} (no time)")
            continue
        begun = time.perf_counter()
        cases.append(asdict(measure(rows, vocabulary, dtype, ceilings)))
        slowest = max(slowest, time.perf_counter() - begun)
        section.write()
        print(f"N {rows}, V {vocabulary}, {dtype}", file=sys.stderr, flush=True)
