"""Ways to multiply float32 activations with weights that are exact in bfloat16 on a CPU, interleaved: speed and error.

    python benchmarks/bfloat16_products.py [--threads 2] [--repeats 15] [--json FILE]

- `float32`: oneDNN's product, weights laid out once;
- `bfloat16`: the same in bfloat16, which rounds its result;
- `fpmath split`: oneDNN told to multiply float32 as bfloat16 (`fp32_precision`), high and low parts of activations in one
  stacked product; without matrix units oneDNN multiplies float32 all the same;
- `bf16x2`: this program's products of high and low parts with float32 sums (evaluator_kernels.bfloat16);
- `bf16x2, float32 weights`: of weights that aren't exact in bfloat16: three products.

GFLOP/s count one product of the shape, whatever a way computes; the best of the repetitions. The error is the largest from
float64, relative to the largest sum of |x·w|. The peak is that of a bfloat16 product of 1024 × 1024 × 1024, measured in
between. Without units for bfloat16 nothing is measured.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from output import benchmark_parser, write_record
from sides import processor
from torch import Tensor

from evaluator.bench.measure import versions
from evaluator_kernels.bfloat16 import LaidOut, Products
from evaluator_serving.devices import bfloat16_units

SHAPES = {"SmolLM2 mlp": (512, 1536, 576), "BERT-base mlp": (768, 3072, 768), "Qwen 2 0.5B mlp": (1024, 4864, 896)}
"""Rows, outputs, width."""
PEAK = 1024


def packed(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """oneDNN's product with a weight that is laid out for it."""
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, len(x))
    return lambda: torch.ops.mkldnn._linear_pointwise(x, laid_out, None, "none", [], "")


def fpmath(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """High and low parts stacked, float32 multiplied as bfloat16 where oneDNN does so."""
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, 2 * len(x))
    torch.backends.mkldnn.matmul.fp32_precision = "none"

    def product() -> Tensor:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        high = x.bfloat16().float()
        both = torch.ops.mkldnn._linear_pointwise(torch.cat([high, x - high]), laid_out, None, "none", [], "")
        torch.backends.mkldnn.matmul.fp32_precision = "none"
        return both[: len(x)].add_(both[len(x) :])

    return product


def measure(shape: tuple[int, int, int], products: Products, repeats: int) -> dict[str, Any]:
    """Every way on one shape."""
    rows, outputs, width = shape
    x, rough = torch.randn(rows, width), torch.randn(outputs, width)
    weight = rough.bfloat16().float()
    one, two = LaidOut.of(weight, 1), LaidOut.of(rough, 2)
    a, b = (torch.randn(PEAK, PEAK).bfloat16() for _ in range(2))
    ways: dict[str, tuple[Callable[[], Tensor], Tensor]] = {
        "float32": (packed(x, weight), weight),
        "bfloat16": (packed(x.bfloat16(), weight.bfloat16()), weight),
        "fpmath split": (fpmath(x, weight), weight),
        "bf16x2": (lambda: products(x, one), weight),
        "bf16x2, float32 weights": (lambda: products(x, two), rough),
        "peak": (packed(a, b), b),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 2):  # the first two allocate and compile
        for name, (call, _) in ways.items():
            begun = time.perf_counter()
            call()
            if repeat >= 2:
                seconds[name].append(time.perf_counter() - begun)
    peak = 2 * PEAK**3 / min(seconds.pop("peak")) / 1e9
    found: dict[str, Any] = {"shape": list(shape), "bfloat16_peak_gflop_s": round(peak, 1)}
    for name, taken in seconds.items():
        call, used = ways[name]
        rate = 2 * rows * outputs * width / min(taken) / 1e9
        largest = (x.abs().double() @ used.abs().double().T).max()
        error = (call().double() - x.double() @ used.double().T).abs().max() / largest
        found[name] = {"gflop_s": round(rate, 1), "share_of_peak": round(rate / peak, 3), "error": float(f"{error:.1e}")}
    return found


def main() -> None:
    """Measure, print, write JSON."""
    parser = benchmark_parser(__doc__, __file__, threads=True)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        products = Products.load(Path(folder)) if bfloat16_units() else None
    if products is None:
        sys.exit(f"skipped: {'no C++ compiler' if bfloat16_units() else 'this CPU has no units for bfloat16'}")
    found = {name: measure(shape, products, arguments.repeats) for name, shape in SHAPES.items()}
    machine = {**processor(), "threads": arguments.threads}
    write_record(arguments.json, {"machine": machine, "versions": versions(), "shapes": found})
    print(f"{machine['cpu']}, {machine['bfloat16']}, {arguments.threads} threads")
    for name, ways in found.items():
        print(f"{name} {ways['shape']}: peak {ways['bfloat16_peak_gflop_s']} GFLOP/s")
        for way, told in ways.items():
            if isinstance(told, dict):
                rate = f"{told['gflop_s']:>9} GFLOP/s {told['share_of_peak']:>7.0%} of the peak"
                print(f"  {way:26}{rate}, error {told['error']:.0e}")


if __name__ == "__main__":
    main()
