"""What a command writes into run.json: before it scores tasks, models and who asked, and then what its chats took."""

import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluator import __version__, logs
from evaluator.reports.notes import doubts, read_how
from evaluator.scoring.loaded_tasks import LoadedTask
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.spec import RunSpec
from evaluator.store.run import Run
from evaluator.tasks.stored import task_entry
from evaluator_serving.registry import engine_class
from evaluator_serving.secrets import redacted


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Who made these numbers: command, time, program version and commit, Python, platform, main libraries."""
    here = Path(__file__).resolve().parents[2]
    commit = None
    if (here / ".git").exists():
        git = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = git.stdout.strip() or None
    return {
        "command": [redacted(word) for word in command],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "evaluator": __version__,
        "commit": commit,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": {name: version(name) for name in ("polars", "numpy")},
    }


def record(
    spec: RunSpec, tasks: Sequence[LoadedTask], models: Sequence[PreparedModel], attempt: Mapping[str, Any] | None = None
) -> Run:
    """Open the run folder and write down what is asked, refusing what contradicts what it holds; `attempt`: by whom."""
    attempt = attempt or provenance(spec.command)
    days = [asdict(model.spec.day) for model in models if model.spec.day]
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt, date=days[0] if days else None)
    with run.locked():
        run.extend(
            tasks={loaded.task.name: task_entry(loaded.task, loaded.samples, run) for loaded in tasks},
            models={model.name: model.entry for model in models},
        )
        for model in models:
            for task, heads in model.heads.items():
                run.add_table(task, heads, model.tables[task])
            run.add_new_failures([(model.name, *pair) for pair in model.refused], "unaskable")
        run.add_attempt(attempt)
    for loaded in tasks:
        for file, how in loaded.samples.facts.get("read_as", {}).items():
            logs.line(f"{loaded.task.name}: {read_how(file, how)}", run=run.path.name)
    for doubt in doubts(run.record, [loaded.task.name for loaded in tasks], [model.name for model in models]):
        warnings.warn(doubt, stacklevel=2)
    return run


def record_replies(run: Run, model: PreparedModel) -> None:
    """Write down what a model's answers to chats took, and who gave them."""
    if model.summary.chats:
        made, facts = engine_class(model.info.engine), run.reply_facts(model.name)
        dollars = made.dollars(model.spec.options, facts.get("prompt_tokens", 0), facts.get("answer_tokens", 0))
        facts |= {"repeatable": made.repeatable, **({"dollars": dollars} if dollars is not None else {})}
        run.update_model(model.name, chats=facts)
