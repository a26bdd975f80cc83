"""What a dtype does to a generative model's results: GEST in float32, bf16x2, bfloat16 and int8, each against float64.

The model's weights are exact in bfloat16, as those of most published models: the demo model's are rounded to it first. Every
dtype scores that model: int8 in the onnx engine, the others in the transformers engine on the CPU. Each dtype is a run of its
own in --runs, which is continued if it was interrupted. Reported per dtype: g_s with its interval, the largest differences from
float64 of g_s, the q_i and the log-probabilities, the latter's mean, and how the linear layers were multiplied.

    EVALUATOR_DATA=DATA python benchmarks/dtype_drift.py [--limit 3565] [--shape qwen2-0.5b] [--runs FOLDER] [--json FILE]

`--shape`: a model of random weights instead (see glm_throughput.py). Times are not compared. gpu_check.py does the same with
the demo sentences on a GPU.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from glm_throughput import SHAPES, bfloat16_demo, shaped_model
from output import benchmark_parser, write_record
from sides import processor

import evaluator
from evaluator.bench.measure import versions

EXACT = "float64"
"""The dtype that the others are compared with."""
ENGINES = {
    EXACT: "transformers",
    "float32": "transformers",
    "bf16x2": "transformers",
    "bfloat16": "transformers",
    "int8": "onnx",
}
"""The engine that computes in each dtype on a CPU."""
RATE = ("template", "group")


def rates(results: Any, measure: str) -> pl.DataFrame:
    """A measure's values by template and group, with their intervals."""
    frame: pl.DataFrame = results.rates()
    return frame.filter(measure=measure).select(*RATE, "value", "low", "high")


def log_probabilities(results: Any, dtype: str) -> pl.DataFrame:
    """log P of each candidate of each request."""
    frame: pl.DataFrame = results.answers(dtype)
    return frame.select("request", "candidate", pl.col("logprobs").list.sum().alias("log_p"))


def scored(
    model: Path, ways: Mapping[str, tuple[str, str]], folder: Path, task: str = "gest", **how: Any
) -> dict[str, dict[str, Any]]:
    """A run of each way (name → engine and dtype), and how far its numbers are from those of the way called EXACT."""
    done = {
        name: evaluator.run(task, {name: str(model)}, folder / f"{model.name}-{name}", engine=engine, dtype=dtype, **how)
        for name, (engine, dtype) in ways.items()
    }
    return {name: drift(name, results, done[EXACT]) for name, results in done.items()}


def drift(name: str, results: Any, exact: Any) -> dict[str, Any]:
    """How far a run's numbers are from the exact one's."""
    both = log_probabilities(results, name).join(log_probabilities(exact, EXACT), on=["request", "candidate"])
    moved = (both["log_p"] - both["log_p_right"]).abs()
    found: dict[str, Any] = {"log_p": {"largest": moved.max(), "mean": moved.mean(), "count": moved.len()}}
    for measure in ("g_s", "q"):
        pairs = rates(results, measure).join(rates(exact, measure), on=RATE, nulls_equal=True)
        found[measure] = pairs.select((pl.col("value") - pl.col("value_right")).abs().max()).item()
    entry = results.record["models"][name]
    return {
        "engine": entry["engine"],
        "linear_layers": entry["engine_details"].get("linear_layers"),
        "g_s_with_interval": {row[0]: row[2:] for row in rates(results, "g_s").iter_rows()},
        "largest_difference": found,
        "verified": entry.get("verified"),
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """All ways as text."""
    lines = [f"{'way':22}{'max |Δ log P|':>15}{'mean':>10}{'max |Δ g_s|':>14}{'max |Δ q_i|':>14}   g_s"]
    for name, one in found.items():
        moved = one["largest_difference"]
        g_s = ", ".join(f"{template}: {value:.4f}" for template, (value, *_) in one["g_s_with_interval"].items())
        lines.append(
            f"{name:22}{moved['log_p']['largest']:>15.1e}{moved['log_p']['mean']:>10.1e}{moved['g_s']:>14.1e}"
            f"{moved['q']:>14.1e}   {g_s}"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare, print, write JSON."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--limit", type=int, help="sentences; default: all")
    parser.add_argument("--shape", choices=SHAPES, help="a model of random weights instead of the demo model")
    parser.add_argument("--runs", type=Path, help="folder of the runs (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.runs or Path(scratch)
        model = folder / (arguments.shape or "demo")
        if not (model / "config.json").is_file():
            _ = shaped_model(arguments.shape, model) if arguments.shape else bfloat16_demo(model)
        ways = {dtype: (engine, dtype) for dtype, engine in ENGINES.items()}
        found = scored(model, ways, folder, limit=arguments.limit, device="cpu")
    report: dict[str, Any] = {
        "model": arguments.shape or "SmolLM2-135M-Instruct, its weights rounded to bfloat16",
        "machine": processor(),
        "versions": versions(),
        "log_probabilities": found[EXACT]["largest_difference"]["log_p"]["count"],
        "dtypes": found,
    }
    write_record(arguments.json, report)
    print(table(found))


if __name__ == "__main__":
    main()
