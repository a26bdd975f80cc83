"""The Triton kernel without a GPU: its arithmetic in the interpreter, its compilation for real chips with ptxas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed (pip install triton; no GPU is needed here)")


def test_arithmetic_in_the_interpreter() -> None:
    """In a child process: the choice to interpret is made when triton is first imported."""
    cases = Path(__file__).with_name("interpreter_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(cases)]
    child = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-2000:]
    assert " passed" in child.stdout


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("dtype", "tile"),
    [
        ("bf16", "(16, 128, 128)"),
        ("bf16", "(128, 128, 64)"),
        ("fp32", "(64, 64, 32)"),
        pytest.param("bf16", None, marks=pytest.mark.slow),
        pytest.param("fp32", None, marks=pytest.mark.slow),
    ],
)
def test_compiles_to_machine_code(capability: int, dtype: str, tile: str | None) -> None:
    """Triton and its bundled ptxas make a cubin for the chip; on Hopper the wide tiles use its matrix instructions."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from evaluator_kernels import triton_kernel

    kernel = triton_kernel._partial_logsumexp.fn.fn
    floats = dict.fromkeys(["hidden", "weight", "bias"], f"*{dtype}") | dict.fromkeys(["part_max", "part_sum"], "*fp32")
    integers = ["N", "V", "H", "hidden_stride", "weight_stride", "splits", "row_bucket"]
    aligned = [*floats, "H", "hidden_stride", "weight_stride"]
    compiled = 0
    for config in triton_kernel._configs():
        shape = str(tuple(config.kwargs[name] for name in ("BLOCK_N", "BLOCK_V", "BLOCK_H")))
        if (tile is not None and shape != tile) or (config.kwargs["BLOCK_H"] > 32) != (dtype == "bf16"):
            continue
        constants = {"HAS_BIAS": True, "PRECISION": "tf32x3", "WIDEN": False, "EVEN_H": True, **config.kwargs}
        signature = floats | dict.fromkeys(integers, "i32") | dict.fromkeys(constants, "constexpr")
        source = ASTSource(
            fn=kernel,
            signature={name: signature[name] for name in kernel.arg_names},
            constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
            attrs={(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned},
        )
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert binary.asm["cubin"]
        assert binary.metadata.shared <= 160 * 1024 if capability == 80 else binary.metadata.shared <= 227 * 1024
        if capability == 90 and config.kwargs["BLOCK_N"] >= 64:
            assert "wgmma.mma_async" in binary.asm["ptx"]
        compiled += 1
    assert compiled
