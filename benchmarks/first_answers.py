"""Seconds until the first answers of a generative model on a CPU: `evaluator run gest-demo` and `evaluator probe`.

    python benchmarks/first_answers.py [--repeats 3] [--model SPEC] [--json FILE]

States of the cache:

- `empty`: the model must be converted, exported and verified;
- `exported`: ONNX graphs are cached, but not the model's configuration and verification: torch and transformers are imported,
  and `probe` uses the transformers engine;
- `remembered`: as after an earlier run with this model.

Timed are, for `run`, the first line on stderr, the line `running` (loaded and verified) and the table; for `probe`, the table.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from output import benchmark_parser, write_record

from evaluator.demo import demo_model

COMMAND = [sys.executable, "-m", "evaluator"]
QUESTION = ("The nurse said that []", "he", "she")


Marks = dict[str, Callable[[str], bool]]
"""Names of what is timed, and whether a line of output is it."""


def times(arguments: Sequence[str], cache: Path, marks: Marks) -> dict[str, float]:
    """Seconds until the first line of stdout or stderr that each of `marks` is looking for, and to the end."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"EVALUATOR_CACHE": str(cache), "HF_HUB_OFFLINE": "1"},
    )
    assert process.stdout is not None
    found: dict[str, float] = {}
    for line in process.stdout:
        for name, is_it in marks.items():
            if name not in found and is_it(line):
                found[name] = time.perf_counter() - begun
    if process.wait():
        sys.exit(f"evaluator {' '.join(arguments)}: exit code {process.returncode}")
    return found | {"end": time.perf_counter() - begun}


def both(model: str, cache: Path, scratch: Path, *, forget: bool = False) -> dict[str, float]:
    """The times of a run, and of a question; with `forget` nothing is remembered of the model before each."""
    shutil.rmtree(scratch / "run", ignore_errors=True)
    run = ["run", "gest-demo", "--model", f"m={model}", "--device", "cpu", "--out", str(scratch / "run")]
    probe = ["probe", model, *QUESTION, "--device", "cpu", "--format", "json"]
    of_run: Marks = {
        "run_first_line": lambda line: "m: " in line,
        "run_running": lambda line: "m: running" in line,
        "run_table": lambda line: line.startswith("gest-demo"),
    }
    of_probe: Marks = {"probe": lambda line: "logprob" in line}
    if not forget:
        return {**times(run, cache, of_run), **times(probe, cache, of_probe)}
    # The run comes last: it remembers the model for what is timed next.
    shutil.rmtree(cache / "known", ignore_errors=True)
    found = times([*probe, "--engine", "transformers"], cache, of_probe)
    return {**times(run, cache, of_run), **found}


def measure(model: str, repeats: int, scratch: Path) -> dict[str, dict[str, float]]:
    """Medians of every state; `empty` happens once."""
    cache = scratch / "cache"
    states = {"empty": [both(model, cache, scratch)], "exported": [], "remembered": []}
    for _ in range(repeats):  # in turn, so that both meet the machine in the same moods
        states["exported"].append(both(model, cache, scratch, forget=True))
        states["remembered"].append(both(model, cache, scratch))
    return {
        state: {name: round(statistics.median(one[name] for one in found), 2) for name in found[0] if name != "end"}
        for state, found in states.items()
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = benchmark_parser(__doc__, __file__, model=True)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(arguments.model or str(demo_model()), arguments.repeats, Path(scratch))
    report: dict[str, Any] = {"cores": os.cpu_count(), "repeats": arguments.repeats, "seconds": found}
    write_record(arguments.json, report)
    names = list(found["empty"])
    print(f"{'cache':12}" + "".join(f"{name:>16}" for name in names))
    for state, seconds in found.items():
        print(f"{state:12}" + "".join(f"{seconds[name]:14.1f} s" for name in names))


if __name__ == "__main__":
    main()
