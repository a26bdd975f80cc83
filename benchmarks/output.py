"""What every benchmark has: a command line that explains it, and a record of its results."""

import argparse
import json
import os
from pathlib import Path
from typing import Any


def benchmark_parser(
    doc: str | None, program: str = "", *, data: bool = False, model: bool = False, threads: bool = False
) -> argparse.ArgumentParser:
    """A parser whose --help is the benchmark's docstring, with --json and the options asked for.

    `program` is the benchmark's `__file__`: its results go to benchmarks/results unless --json names a file.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(program).resolve().with_name("results") / f"{Path(program).stem}.json" if program else None
    parser.add_argument("--json", type=Path, default=default, help="file for the results" + " [%(default)s]" * bool(default))
    if data:
        folder = os.environ.get("EVALUATOR_DATA")
        parser.add_argument("--data", type=Path, default=folder, help="folder of the public data sets [EVALUATOR_DATA]")
    if model:
        parser.add_argument("--model", help="folder, GGUF file or hub id [the demo model]")
    if threads:
        parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads [all]")
    return parser


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
