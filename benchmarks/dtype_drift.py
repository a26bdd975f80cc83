"""What a dtype does to a generative model's results: GEST in float32, bf16x2, bfloat16 and int8, each against float64.

The model's weights are exact in bfloat16, as those of most models are published: the demo model's are rounded to it once, and
every dtype scores that model, int8 in the onnx engine and the others in the transformers engine on the CPU. Each dtype is a run of
its own in --runs, so that what was interrupted goes on. Reported per dtype and template: g_s with its interval, how far it, the 16
q_i and the log-probabilities are from float64's at most, and on average the log-probabilities; how linear layers were multiplied.

    EVALUATOR_DATA=DATA python benchmarks/dtype_drift.py [--limit 3565] [--shape qwen2-0.5b] [--runs FOLDER] [--json FILE]

`--shape`: a model of random weights instead (see glm_throughput.py). Times are not compared here.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from glm_throughput import SHAPES, bfloat16_demo, shaped_model
from sides import processor

import evaluator
from evaluator.bench.measure import versions

DTYPES = {
    "float64": "transformers",
    "float32": "transformers",
    "bf16x2": "transformers",
    "bfloat16": "transformers",
    "int8": "onnx",
}
"""The dtypes with the engine that computes each; the first is what the others are compared with."""
RATE = ("template", "group")


def rates(results: Any, measure: str) -> pl.DataFrame:
    """A measure's values by template and group, with their intervals."""
    frame: pl.DataFrame = results.rates()
    return frame.filter(measure=measure).select(*RATE, "value", "low", "high")


def log_probabilities(results: Any, dtype: str) -> pl.DataFrame:
    """log P of each candidate of each request."""
    frame: pl.DataFrame = results.answers(dtype)
    return frame.select("request", "candidate", pl.col("logprobs").list.sum().alias("log_p"))


def drift(dtype: str, results: Any, exact: Any) -> dict[str, Any]:
    """How far a run's numbers are from the exact one's."""
    both = log_probabilities(results, dtype).join(log_probabilities(exact, next(iter(DTYPES))), on=["request", "candidate"])
    moved = (both["log_p"] - both["log_p_right"]).abs()
    found: dict[str, Any] = {"log_p": {"largest": moved.max(), "mean": moved.mean(), "count": moved.len()}}
    for measure in ("g_s", "q"):
        pairs = rates(results, measure).join(rates(exact, measure), on=RATE, nulls_equal=True)
        found[measure] = {
            template: part.select((pl.col("value") - pl.col("value_right")).abs().max()).item()
            for (template,), part in pairs.group_by("template", maintain_order=True)
        }
    entry = results.record["models"][dtype]
    return {
        "engine": entry["engine"],
        "linear_layers": entry["engine_details"].get("linear_layers"),
        "g_s_with_interval": {row[0]: row[2:] for row in rates(results, "g_s").iter_rows()},
        "largest_difference": found,
        "verified": entry.get("verified"),
    }


def table(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"{'dtype':10}{'max |Δ log P|':>15}{'mean':>10}{'max |Δ g_s|':>14}{'max |Δ q_i|':>14}   g_s"]
    for dtype, found in report["dtypes"].items():
        moved = found["largest_difference"]
        worst = [max(moved[measure].values()) for measure in ("g_s", "q")]
        g_s = ", ".join(f"{template}: {value:.4f}" for template, (value, *_) in found["g_s_with_interval"].items())
        lines.append(
            f"{dtype:10}{moved['log_p']['largest']:>15.1e}{moved['log_p']['mean']:>10.1e}{worst[0]:>14.1e}{worst[1]:>14.1e}   {g_s}"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="sentences; default: all")
    parser.add_argument("--shape", choices=SHAPES, help="a model of random weights instead of the demo model")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES), help="float64 is always one of them")
    parser.add_argument("--runs", type=Path, help="folder of the runs (default: a temporary one)")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results") / "dtype_drift.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.runs or Path(scratch)
        model = folder / (arguments.shape or "demo")
        if not (model / "config.json").is_file():
            _ = shaped_model(arguments.shape, model) if arguments.shape else bfloat16_demo(model)
        done = {
            dtype: evaluator.run(
                "gest",
                {dtype: str(model)},
                folder / f"{model.name}-{dtype}",
                limit=arguments.limit,
                engine=engine,
                dtype=dtype,
                device="cpu",
            )
            for dtype, engine in DTYPES.items()
            if dtype in {*arguments.dtypes, "float64"}
        }
        report: dict[str, Any] = {
            "model": f"random weights in the shape of {arguments.shape}"
            if arguments.shape
            else "SmolLM2-135M-Instruct in bfloat16",
            "machine": processor(),
            "versions": versions(),
            "sentences": done["float64"].scores("gest")["sample"].n_unique(),
            "dtypes": {dtype: drift(dtype, results, done["float64"]) for dtype, results in done.items()},
        }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
