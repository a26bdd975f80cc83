"""Complete GEST for masked models, 3,565 sentences × 4 templates, by commands: onnx against transformers.

    python benchmarks/whole_gest.py [--shapes bert-base xlmr-base] [--models FOLDER…] [--data DIR] [--json FILE]

`evaluator run gest` runs with each engine, then `evaluator report --format csv`. Values and interval bounds are compared;
tables are equal to three decimals if no difference reaches 0.0005. Wall times include loading, export, verification, scoring
and intervals, of one run each (for speed see mlm_throughput.py). Shapes have random weights (see masked_models.py).
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
from masked_models import make_shape
from output import benchmark_parser, write_record
from sides import sentences

from evaluator.bench.measure import versions

ENGINES = ("onnx", "transformers")
NUMBERS = ("value", "low", "high")
KEY = ("task", "language", "template", "measure", "group", "n", "scale")
SAME = 5e-4


def evaluator(*arguments: object) -> str:
    """Standard output of the command line."""
    command = [sys.executable, "-m", "evaluator", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def table(model: Path, engine: str, data: Path, folder: Path) -> tuple[pl.DataFrame, float]:
    """Tidy rows of the whole job, and its seconds."""
    begun = time.perf_counter()
    run = folder / engine
    evaluator("run", "gest", "--model", model, "--engine", engine, "--data", data, "--out", run)
    seconds = time.perf_counter() - begun
    text = evaluator("report", run, "--format", "csv")
    return pl.read_csv(text.encode(), schema_overrides={"group": pl.String, "template": pl.String}), seconds


def compare(name: str, model: Path, data: Path) -> dict[str, Any]:
    """One model with both engines."""
    with tempfile.TemporaryDirectory() as folder:
        found = {engine: table(model, engine, data, Path(folder)) for engine in ENGINES}
    (ours, ours_s), (theirs, theirs_s) = (found[engine] for engine in ENGINES)
    both = ours.join(theirs, on=KEY, suffix="_other", nulls_equal=True)
    assert both.height == ours.height == theirs.height, "the two tables have other rows"
    gaps = [both.filter(pl.col(c).is_null() != pl.col(f"{c}_other").is_null()).height for c in NUMBERS]
    assert not any(gaps), "a value is missing in one of the tables only"
    differences = [both.select((pl.col(c) - pl.col(f"{c}_other")).abs().max()).item() or 0.0 for c in NUMBERS]
    return {
        "model": name,
        "rows": both.height,
        "max_difference": dict(zip(NUMBERS, differences, strict=True)),
        "equal_to_three_decimals": max(differences) < SAME,
        "seconds": {"onnx": round(ours_s, 1), "transformers": round(theirs_s, 1)},
    }


def main() -> None:
    """Compare, write JSON, print one line per model."""
    parser = benchmark_parser(__doc__, __file__, data=True)
    parser.add_argument("--shapes", nargs="*", choices=["bert-base", "xlmr-base"], default=["bert-base"])
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="folders of masked models")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give --data or EVALUATOR_DATA")
    os.environ["EVALUATOR_DATA"] = str(arguments.data)
    results = [compare(model.name, model, arguments.data) for model in arguments.models]
    for shape in arguments.shapes:
        with tempfile.TemporaryDirectory() as folder:
            results.append(
                compare(f"{shape}, random weights", make_shape(shape, Path(folder), sentences(3565)), arguments.data)
            )
    machine = {"cpu": platform.processor() or platform.machine(), "threads": os.cpu_count()}
    write_record(arguments.json, {"machine": machine, "versions": versions(), "results": results})
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
