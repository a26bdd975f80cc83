"""Effect of 8-bit weights on GEST: the onnx engine in float32 and int8, as one run with two models.

    EVALUATOR_DATA=DATA python benchmarks/int8_drift.py [--limit 3565] [--model SPEC] [--json FILE]

Reported are g_s with its interval for both, their paired difference, the drift of the sentences' scores, and the ratio of the
times, which are not interleaved (for speed see glm_throughput.py).
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from output import write_record

import evaluator
from evaluator.demo import demo_model
from evaluator.store.run import Run

KEY = ("language", "template", "sample", "group")


def scored(model: str, dtype: str, limit: int | None, folder: Path) -> Any:
    """A finished run in one dtype."""
    return evaluator.run("gest", {dtype: model}, folder / dtype, limit=limit, engine="onnx", dtype=dtype, device="cpu")


def rates(results: Any) -> dict[str, dict[str, float]]:
    """g_s of every template with its interval."""
    rows = results.rates().filter(measure="g_s").select("template", "value", "low", "high").iter_rows()
    return {template: {"g_s": value, "low": low, "high": high} for template, value, low, high in rows}


def seconds(results: Any) -> float:
    """What its chunks took."""
    return float(Run.open(results.path).timings()["seconds"].sum())


def main() -> None:
    """Compare, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="sentences; default: all")
    parser.add_argument("--model", help="folder, GGUF file or hub id (default: the demo model)")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results") / "int8_drift.json")
    arguments = parser.parse_args()
    model = arguments.model or str(demo_model())
    with tempfile.TemporaryDirectory() as folder:
        exact, rough = (scored(model, dtype, arguments.limit, Path(folder)) for dtype in ("float32", "int8"))
        both = exact.scores("gest").join(rough.scores("gest"), on=KEY, suffix="_int8")
        drift = both.select((pl.col("score_int8") - pl.col("score")).alias("d"), "score", "score_int8")
        differences = evaluator.compare(exact, rough, allow=("dtype",)).filter(measure="g_s")
        report: dict[str, Any] = {
            "model": Path(model).stem,
            "sentences": both["sample"].n_unique(),
            "float32": rates(exact),
            "int8": rates(rough),
            "paired_difference_of_g_s": differences.to_dicts(),
            "drift_of_scores": {
                "mean": drift["d"].mean(),
                "mean_absolute": drift["d"].abs().mean(),
                "largest": drift["d"].abs().max(),
                "correlation": drift.select(pl.corr("score", "score_int8")).item(),
            },
            "float32_over_int8_seconds": round(seconds(exact) / seconds(rough), 2),
            "verified": {
                dtype: one.record["models"][dtype]["verified"] for dtype, one in (("float32", exact), ("int8", rough))
            },
        }
    write_record(arguments.json, report)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
