"""How long a leaderboard of 2,000 models × 10 tasks takes to rank and write, and how large its page is.

    python benchmarks/leaderboard.py [--models 2000] [--tasks 10] [--json FILE] [--keep DIR]

Models, their values and their resamples are made up; measuring them (which a run's own report does) is not part of it.
"""

import json
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from output import benchmark_parser, write_record

from evaluator.ranking.board import VALUES, Board, BoardColumn, BoardRow
from evaluator.ranking.write import PAGE, TABLE, write

RESAMPLES = 1000
LIMIT_SECONDS, LIMIT_BYTES = 5.0, 10_000_000
FAMILIES = ("llama", "mistral", "qwen", "gemma", "gpt2", "pythia", "bert", "phi")
LANGUAGES = ("en", "de", "fr", "es", "tr")


def made_up(models: int, tasks: int) -> Board:
    """A board whose models differ by as much as their intervals are wide."""
    random = np.random.default_rng(0)
    entries = tuple(
        BoardRow(
            f"{FAMILIES[i % len(FAMILIES)]}-{i:04}",
            f"run-{i // 50}",
            FAMILIES[i % len(FAMILIES)],
            float(f"{10 ** random.uniform(7.5, 11.5):.3g}"),
            i % 2 == 0,
            f"{2020 + i % 6}-{1 + i % 12:02}-{1 + i % 28:02}",
        )
        for i in range(models)
    )
    columns = tuple(BoardColumn(f"task-{t}.g_s", f"task-{t} g_s", LANGUAGES[t % len(LANGUAGES)], 1.0) for t in range(tasks))
    places = np.indices((tasks, models)).reshape(2, -1)
    values = np.exp(random.normal(0.2, 0.2, places.shape[1]))
    draws = (values[:, None] * np.exp(random.normal(0, 0.05, (len(values), RESAMPLES)))).astype(np.float32)
    low, high = np.quantile(draws, (0.025, 0.975), axis=1)
    ways = [f"{'masked' if entry % 4 == 0 else 'generative'}; protocol default" for entry in places[1]]
    rows = {"entry": places[1], "column": places[0], "value": values, "low": low, "high": high, "way": ways, "partial": None}
    return Board("Made-up models", columns, entries, pl.DataFrame(rows, schema=VALUES), draws, ("scale: ratio",))


def measure(models: int, tasks: int, folder: Path) -> dict[str, float | int]:
    """Rank and write a made-up board; seconds and bytes."""
    board = made_up(models, tasks)
    start, cpu = time.perf_counter(), time.process_time()
    ranked = board.ranked()
    ranking = time.perf_counter() - start
    write(board, ranked, board.wide(ranked), folder)
    return {
        "models": models,
        "tasks": tasks,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "ranking_seconds": round(ranking, 2),
        "page_bytes": (folder / PAGE).stat().st_size,
        "csv_bytes": (folder / TABLE).stat().st_size,
    }


def main() -> None:
    """Measure, print and keep."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="folder to leave the page in")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(chosen.models, chosen.tasks, chosen.keep or Path(temporary))
    report = {"machine": platform.processor() or platform.machine(), "resamples": RESAMPLES, **found}
    report["within_limits"] = found["seconds"] < LIMIT_SECONDS and found["page_bytes"] < LIMIT_BYTES
    print(json.dumps(report, indent=1))
    write_record(chosen.json, report)


if __name__ == "__main__":
    main()
