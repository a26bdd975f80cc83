"""The Triton kernels compiled for a chip that isn't here, and what the compiler says of the result. Needs triton, no GPU."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from . import triton_kernel
from .triton_kernel import COMPILER_OPTIONS, FINISH_BLOCKS, Tile, tile_of

CHIPS = (80, 90, 100)
"""Compute capabilities that data centres have: A100, H100 and H200, B200."""
SHARED_LIMIT = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that one program may have (CUDA C programming guide, compute capabilities)."""
DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Types of the input, with their bytes."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a kernel is specialised for besides its tile.

    Attributes:
        dtype: of hidden states, weight and bias: `bf16`, `fp16` or `fp32`.
        bias: whether there is one.
        even: whether the width is a multiple of every tile's depth.
        aligned: whether width and strides are multiples of 16; they are where `even`.
        precision: how float32 is multiplied.
    """

    dtype: str = "bf16"
    bias: bool = True
    even: bool = True
    aligned: bool = True
    precision: str = "tf32x3"

    @property
    def deep(self) -> bool:
        """Whether it takes the deep tiles, which are those for 16-bit input."""
        return DTYPES[self.dtype] < 4


PROBLEMS = (
    *(Problem(dtype, bias, even) for dtype in ("bf16", "fp32") for bias in (True, False) for even in (True, False)),
    Problem("fp16"),
    Problem("bf16", even=False, aligned=False),
    Problem("fp32", even=False, aligned=False),
    Problem("fp32", precision="ieee"),
)
"""Everything that a run can ask of `_partial_logsumexp`: fp16 makes the same code as bf16 but for its instructions' names."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel in machine code for one chip.

    Attributes:
        shared: bytes of shared memory of a program.
        registers: of a thread; spilled: bytes that a thread stores to memory because it has no more.
        copies: asynchronous copies from memory to shared memory in the code.
        products: the matrix instruction that it uses: `mma`, `wgmma`, `tcgen05`, or empty.
    """

    shared: int
    registers: int
    spilled: int
    copies: int
    products: str


def tiles(problem: Problem) -> list[tuple[Tile, triton.Config]]:
    """The tiles that the autotuner may choose from for this problem's type, whatever the chip and the rows."""
    found = [(tile_of(config), config) for config in triton_kernel.configurations()]
    return [(tile, config) for tile, config in found if tile.deep == problem.deep]


def compile_tile(config: triton.Config, problem: Problem, chip: int) -> Compiled:
    """`_partial_logsumexp` in one tile. Raises what Triton or ptxas raise where it can't be compiled."""
    floats = dict.fromkeys(("hidden", "weight", "bias"), f"*{problem.dtype}") | dict.fromkeys(("part_max", "part_sum"), "*fp32")
    sizes = ("H", "hidden_stride", "weight_stride")
    integers = dict.fromkeys(("N", "V", *sizes, "splits", "row_bucket"), "i32")
    constants = {"HAS_BIAS": problem.bias, "PRECISION": problem.precision, "WIDEN": False, "EVEN_H": problem.even}
    return _compile(
        triton_kernel._partial_logsumexp.fn.fn,
        floats | integers,
        constants | config.kwargs,
        [*floats, *(sizes if problem.aligned else ())],
        chip,
        {"num_warps": config.num_warps, "num_stages": config.num_stages},
    )


def compile_finish(problem: Problem, chip: int, candidates: int = 4) -> Compiled:
    """`_finish` for so many candidates. Raises as `compile_tile` does."""
    inputs = dict.fromkeys(("hidden", "weight", "bias"), f"*{problem.dtype}") | {"candidates": "*i64"}
    floats = inputs | dict.fromkeys(("part_max", "part_sum", "log_probs", "logsumexp"), "*fp32")
    sizes = ("H", "hidden_stride", "weight_stride")
    constants = {"HAS_BIAS": problem.bias, "BLOCK_K": candidates, **FINISH_BLOCKS}
    return _compile(
        triton_kernel._finish,
        floats | dict.fromkeys(("V", "K", *sizes, "splits"), "i32"),
        constants,
        [*floats, *(sizes if problem.aligned else ())],
        chip,
        {},
    )


def faults(found: Compiled, tile: Tile, problem: Problem, chip: int) -> list[str]:
    """What is not as it must be with a tile on a chip; nothing where all is.

    Registers may spill where no run of this program meets it: in widths that are no multiple of 16 (no published model has one;
    numbers are then read one by one), and in "ieee" precision.
    """
    wide = tile.rows >= 64  # what the warps of a group, or a tensor core of the newest chips, multiply at once
    products = {9: "wgmma", 10: "tcgen05"}.get(chip // 10, "mma") if wide else "mma"
    told = {
        f"takes {found.shared} bytes of shared memory": found.shared > SHARED_LIMIT[chip] << 10,
        "copies nothing asynchronously": problem.aligned and not found.copies,
        f"multiplies with {found.products or 'plain arithmetic'} instead of {products}": (
            problem.precision != "ieee" and found.products != products
        ),
        f"spills {found.spilled} bytes and isn't dropped": (
            found.spilled > 0 and problem.aligned and problem.precision != "ieee" and not tile.spills_on(chip)
        ),
    }
    return [text for text, wrong in told.items() if wrong]


def _compile(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], aligned: list[str], chip: int, options: dict[str, int]
) -> Compiled:
    """`aligned` names the arguments that are multiples of 16, as pointers are: without it nothing is copied asynchronously."""
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    places = {name: place for place, name in enumerate(kernel.arg_names)}
    source = ASTSource(
        fn=kernel,
        signature={name: signature[name] for name in places},
        constexprs={(places[name],): value for name, value in constants.items()},
        attrs={(places[name],): [["tt.divisibility", 16]] for name in aligned},
    )
    with _talking_compiler() as said:
        binary = triton.compile(source, target=GPUTarget("cuda", chip, 32), options=options | COMPILER_OPTIONS)
    return _read(said.getvalue(), binary.asm["ptx"], binary.metadata.shared)


@contextlib.contextmanager
def _talking_compiler() -> Iterator[io.StringIO]:
    """ptxas always runs, and what it says of registers is caught: it is the ptxas that Triton runs for that chip."""
    said = io.StringIO()
    with knobs.compilation.scope(), knobs.nvidia.scope(), contextlib.redirect_stdout(said):
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        yield said


def _read(log: str, ptx: str, shared: int) -> Compiled:
    """What ptxas -v and the PTX say. Raises ValueError where ptxas says nothing of registers: it has not run."""
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    if registers is None or spilled is None:
        raise ValueError(f"ptxas reported no registers: {log[:200]!r}")
    names = {"tcgen05": "tcgen05.mma", "wgmma": "wgmma.mma_async", "mma": "mma.sync"}
    products = next((name for name, text in names.items() if text in ptx), "")
    copies = ptx.count("cp.async.c") + ptx.count("cp.async.bulk")
    return Compiled(shared, int(registers[1]), int(spilled[1]), copies, products)
