"""Time and memory of rates and bootstrap intervals for 100 models × 4 templates × 3,565 samples.

    python benchmarks/aggregation.py [--models 100] [--json FILE]

Scores are synthetic. Each interval method runs in a separate process. Measured are wall and CPU time from scores to tidy rows,
and the process's peak memory.
"""

import argparse
import json
import platform
import subprocess
import sys
import time

from output import benchmark_parser, write_record

SAMPLES = 3565
GROUPS = 16
TEMPLATES = ("1", "2", "3", "4")
LIMIT_SECONDS, LIMIT_BYTES = 60, 2 * 2**30


def child(models: int, interval: str) -> dict[str, float | int]:
    """Measure one kind of interval in this process."""
    import numpy as np
    import polars as pl

    from evaluator.tasks import task
    from evaluator.vocabulary import MeasureOptions
    from evaluator_serving.memory import peak_memory

    random = np.random.default_rng(0)
    cells = models * len(TEMPLATES)
    sample = np.tile(np.arange(SAMPLES), cells)
    logprob = random.normal(-2, 1, size=(2, cells * SAMPLES))
    scores = pl.DataFrame(
        {
            "model": np.repeat([f"model-{i}" for i in range(models)], len(TEMPLATES) * SAMPLES),
            "task": "gest",
            "language": "en",
            "template": np.tile(np.repeat(TEMPLATES, SAMPLES), models),
            "sample": sample,
            "group": (sample % GROUPS + 1).astype(str),
            "score": logprob[0] - logprob[1],
            "family": sample % 20 == 0,
            "logprob_male": logprob[0],
            "logprob_female": logprob[1],
        }
    )
    del logprob, sample
    start, cpu = time.perf_counter(), time.process_time()
    rows = task("gest").measure(scores, MeasureOptions(interval=interval))  # type: ignore[arg-type]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = peak_memory()
    return {
        "scores": scores.height,
        "rows": rows.height,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_bytes": peak,
    }


def main() -> int:
    """Run every kind of interval, print a table, write JSON; exit code 1 where a limit is missed."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.models, arguments.child)))
        return 0
    results = {}
    for interval in ("percentile", "bca", "published"):
        command = [sys.executable, __file__, "--models", str(arguments.models), "--child", interval]
        results[interval] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    record = {
        "models": arguments.models,
        "templates": len(TEMPLATES),
        "samples": SAMPLES,
        "resamples": 1000,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "limits": {"seconds": LIMIT_SECONDS, "peak_bytes": LIMIT_BYTES},
        "results": results,
    }
    write_record(arguments.json, record)
    print(f"{'interval':12} {'scores':>10} {'rows':>8} {'seconds':>8} {'CPU s':>7} {'peak MiB':>9}")
    for interval, r in results.items():
        times = f"{r['seconds']:8.1f} {r['cpu_seconds']:7.1f}"
        print(f"{interval:12} {r['scores']:10,} {r['rows']:8,} {times} {r['peak_bytes'] / 2**20:9.0f}")
    return int(any(r["seconds"] > LIMIT_SECONDS or r["peak_bytes"] > LIMIT_BYTES for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
