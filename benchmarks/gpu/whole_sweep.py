"""`evaluator sweep` of three small models on Ray, from the command line to scores."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu.inputs import random_bert, random_gpt2, random_llama
from gpu.section import Part, Section, SkipError

from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator_serving.checks.verify import TOLERANCE
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.config import quiet

LIMIT = 16
TASK = "gest-demo"
KEYS = ["model", "template", "sample"]


def run(section: Section, scratch: Path) -> None:
    """One sweep, compared with transformers in float64 on the CPU."""
    if importlib.util.find_spec("ray") is None:
        raise SkipError("ray isn't installed: pip install ray")
    with section.part("three models on Ray") as part:
        quiet()
        models = {
            "bert": random_bert(scratch / "bert", small=True),
            "gpt2": random_gpt2(scratch / "gpt2"),
            "llama": random_llama(scratch / "llama", small=True),
        }
        begun = time.perf_counter()
        record = _sweep(part, section, scratch, models)
        part.measured(seconds_of_the_sweep=time.perf_counter() - begun)
        part.measured(
            engines={name: entry["engine"] for name, entry in record["models"].items()},
            starts={name: [start["seconds"] for start in entry.get("starts", ())] for name, entry in record["models"].items()},
        )
        options = EngineOptions(dtype="float64", device="cpu")
        specs = tuple(ModelSpec(str(path), "transformers", options=options, label=name) for name, path in models.items())
        oracle = scores_of(execute(RunSpec(specs, (task(TASK),), scratch / "oracle", limit=LIMIT)).run, TASK).sort(KEYS)
        scores = scores_of(Run.open(scratch / "run"), TASK).sort(KEYS)
        part.holds("every sample is scored, of every model", scores.select(KEYS).equals(oracle.select(KEYS)))
        part.measured(scores=scores.height)
        # A score is the difference of two log-probabilities.
        worst = float((scores["score"] - oracle["score"]).abs().max())  # type: ignore[arg-type]
        part.check("largest difference of scores", worst, 2 * TOLERANCE["float32"])


def _sweep(part: Part, section: Section, scratch: Path, models: dict[str, Path]) -> dict[str, Any]:
    """The command; returns run.json."""
    entries = "".join(f'[[models]]\nmodel = "{path}"\nname = "{name}"\n' for name, path in models.items())
    (scratch / "SWEEP.toml").write_text(f'tasks = ["{TASK}"]\nlimit = {LIMIT}\n{entries}')
    command = [sys.executable, "-m", "evaluator", "sweep", str(scratch / "SWEEP.toml"), "--out", str(scratch / "run")]
    done = subprocess.run(
        [*command, "--ray", "local", "--workers", "1"], capture_output=True, text=True, timeout=section.left(), check=False
    )
    part.holds("the command ended with 0", done.returncode == 0)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip().splitlines()[-1][-400:]}")
    return dict(json.loads((scratch / "run" / "run.json").read_text(encoding="utf8")))
