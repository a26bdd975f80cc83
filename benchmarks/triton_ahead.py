"""Compile every configuration of the Triton kernels for A100, H100/H200 and B200, without a GPU.

    python benchmarks/triton_ahead.py [--chips 80 90 100] [--processes 2] [--json FILE]

For each chip, tile and kind of problem (type, bias, even or uneven width, precision) the JSON has registers and spilled bytes
per thread, shared memory per program, asynchronous copies, and the matrix instruction. Exit code 1, with the configurations,
if one does not compile, exceeds the chip's shared memory, lacks asynchronous copies of aligned input or the chip's matrix
instruction, or spills registers on a chip whose autotuner may choose it.
"""

import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from output import benchmark_parser

from evaluator_kernels.ahead import CHIPS, PROBLEMS, Problem, compile_finish, compile_tile, faults, tiles


def compiled(chip: int, problem: Problem) -> list[dict[str, Any]]:
    """A row a tile, then one for `_finish`: `wrong` says what is not as it must be, `dropped` that the chip leaves it out."""
    rows = []
    for tile, config in tiles(problem):
        row: dict[str, Any] = {"chip": chip, **asdict(problem), "tile": list(tile), "dropped": tile.spills_on(chip)}
        try:
            found = compile_tile(config, problem, chip)
        except Exception as error:
            rows.append(row | {"wrong": [f"{type(error).__name__}: {str(error)[:300]}"]})
            continue
        rows.append(row | asdict(found) | {"wrong": faults(found, tile, problem, chip)})
    found = compile_finish(problem, chip)
    wrong = ["spills registers"] if found.spilled else []
    return [*rows, {"chip": chip, **asdict(problem), "tile": "finish", "dropped": False, **asdict(found), "wrong": wrong}]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """By chip and tile: the worst of all kinds of problems."""
    yield f"{'chip':>5} {'tile':22} {'registers':>9} {'spilled':>8} {'shared KiB':>10} {'copies':>7}  products"
    for key in dict.fromkeys((row["chip"], str(row["tile"])) for row in rows):
        same = [row for row in rows if (row["chip"], str(row["tile"])) == key and "registers" in row]
        most = {name: max(row[name] for row in same) for name in ("registers", "spilled", "shared", "copies")}
        products = "/".join(sorted({row["products"] for row in same} - {""})) or "-"
        left_out = "  (dropped)" if same[0]["dropped"] else ""
        yield (
            f"{key[0]:>5} {key[1]:22} {most['registers']:>9} {most['spilled']:>8} {most['shared'] / 1024:>10.1f} "
            f"{most['copies']:>7}  {products}{left_out}"
        )


def main() -> int:
    """Compile, print a table, write JSON."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--chips", nargs="+", type=int, default=list(CHIPS))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = [(chip, problem) for chip in arguments.chips for problem in PROBLEMS]
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        rows = [row for part in pool.map(compiled, *zip(*jobs, strict=True)) for row in part]
    wrong = [row for row in rows if row["wrong"]]
    record = {"triton": version("triton"), "configurations": len(rows), "wrong": len(wrong), "rows": rows}
    arguments.json.write_text(json.dumps(record, indent=None).replace('{"chip"', '\n{"chip"') + "\n")
    print("\n".join(table(rows)))
    for row in wrong:
        print("WRONG:", row, file=sys.stderr)
    print(f"{len(rows)} configurations, {len(wrong)} wrong; {arguments.json}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
