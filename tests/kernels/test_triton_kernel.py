"""The Triton kernel without a GPU: its arithmetic in the interpreter, its compilation for real chips with ptxas."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed (pip install triton; no GPU is needed here)")


def test_arithmetic_in_the_interpreter() -> None:
    """In a child process: the choice to interpret is made when triton is first imported."""
    cases = Path(__file__).with_name("interpreter_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(cases)]
    child = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-2000:]
    assert " passed" in child.stdout


@pytest.mark.parametrize("chip", [80, 90, 100])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_tile_compiles_for_chips_that_are_not_here(chip: int, dtype: str) -> None:
    """Triton and the ptxas that it runs for the chip make machine code without fault, in which nothing spills that is used.

    All kinds of problems (no bias, uneven widths, other types and precisions): benchmarks/triton_ahead.py.
    """
    from evaluator_kernels.ahead import Problem, compile_finish, compile_tile, faults, tiles

    problem = Problem(dtype)
    found = {tile: compile_tile(config, problem, chip) for tile, config in tiles(problem)}
    assert len(found) == (8 if dtype == "bf16" else 5)
    assert {tile: told for tile, made in found.items() if (told := faults(made, tile, problem, chip))} == {}
    wide = {made.products for tile, made in found.items() if tile.rows >= 64}
    assert wide == {80: {"mma"}, 90: {"wgmma"}, 100: {"tcgen05"}}[chip]
    assert all(made.copies for made in found.values())
    assert compile_finish(problem, chip).spilled == 0


def test_machine_code_does_not_depend_on_the_default_of_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.10 changes it."""
    import triton

    from evaluator_kernels.ahead import Problem, compile_finish

    compiled: list[Any] = []
    monkeypatch.setattr(
        triton, "compile", lambda *a, plain=triton.compile, **k: compiled.append(plain(*a, **k)) or compiled[-1]
    )
    for default in ("0", "1"):
        monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", default)
        compile_finish(Problem("fp32"), 90)
    off, on = (made.asm["ptx"] for made in compiled)
    assert "fma.rn.f32" in on
    assert off == on


def test_faults_are_found() -> None:
    from evaluator_kernels.ahead import Compiled, Problem, faults
    from evaluator_kernels.triton_kernel import TILES

    tile = next(tile for tile in TILES if tile.rows >= 64 and tile.deep)
    good = Compiled(shared=100 << 10, registers=200, spilled=0, copies=12, products="wgmma")
    assert faults(good, tile, Problem(), 90) == []
    bad = Compiled(shared=228 << 10, registers=255, spilled=8, copies=0, products="mma")
    assert len(faults(bad, tile, Problem(), 90)) == 4


def test_autotuner_leaves_out_what_spills_and_has_something_left() -> None:
    from evaluator_kernels.triton_kernel import SPILLING, TILES, row_bucket, worthwhile

    assert SPILLING[8] < set(TILES)
    for chip in (75, 80, 86, 89, 90, 100, 120):
        for deep in (True, False):
            for rows in (1, 100, 5000):
                left = [t for t in TILES if worthwhile(t, deep=deep, rows=row_bucket(rows), chip=chip)]
                assert left
                assert not SPILLING.get(chip // 10, set()) & set(left)
    some = next(iter(SPILLING[8]))
    assert worthwhile(some, deep=some.deep, rows=1024, chip=90)
