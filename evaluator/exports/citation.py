"""BibTeX of what a run was made with: the program, each data set, each method."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evaluator import __version__
from evaluator.datasets.registry import HERE, datasets
from evaluator.store.remote import run_folder
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.stored import task_of

PROGRAM = """@software{{stereotype_evaluator,
  title = {{stereotype-evaluator: stereotypes in language models, measured at scale}},
  author = {{{{stereotype-evaluator maintainers}}}},
  version = {{{version}}},
  year = {{{year}}},
{note}}}
"""


def cite(run: str | Path) -> str:
    """BibTeX of the program, data sets and methods of a run, each with the version that the run used.

    Raises InputError where `run` is none.
    """
    opened = Run.open(run_folder(run))
    return bibtex(opened.record, {name: task_of(opened, name) for name in opened.tasks})


def bibtex(record: Mapping[str, Any], tasks: Mapping[str, Task]) -> str:
    """The entries for run.json's record and its tasks, by name. A comment above each entry says what it is cited for."""
    made = [_program(record)]
    wanted: dict[str, list[str]] = {}
    for name, task in tasks.items():
        for key in task.references:
            wanted.setdefault(key, []).append(_reason(key, name, task, record["tasks"][name]))
    known = references()
    for key, reasons in wanted.items():
        if key in known:
            made.append("\n".join([*(f"% {reason}" for reason in dict.fromkeys(reasons)), known[key]]))
    own = [f"% {name}: custom samples, cite their source." for name, task in tasks.items() if not task.reads]
    return "\n".join([*made, *own]).rstrip() + "\n"


@cache
def references() -> Mapping[str, str]:
    """Key → entry of `references.bib`."""
    entries = re.split(r"\n(?=@)", (HERE / "references.bib").read_text(encoding="utf-8"))
    return {entry.partition("{")[2].partition(",")[0]: entry.strip() + "\n" for entry in entries}


def _program(record: Mapping[str, Any]) -> str:
    """One entry for the version that worked on the run last; others are in its note."""
    attempts = record["attempts"]
    versions = list(dict.fromkeys(str(each["evaluator"]) for each in attempts if "evaluator" in each)) or [__version__]
    commits = list(dict.fromkeys(str(each["commit"]) for each in attempts if each.get("commit")))
    times = [str(each["time"]) for each in attempts if "time" in each]
    parts = [
        *([f"earlier parts: version {', '.join(versions[:-1])}"] if versions[1:] else []),
        *([f"commit {', '.join(commits)}"] if commits else []),
        f"protocol {record['protocol']}",
    ]
    note = f"  note = {{{'; '.join(parts)}}},\n"
    return PROGRAM.format(version=versions[-1], year=times[-1][:4] if times else "n.d.", note=note)


def _reason(key: str, name: str, task: Task, entry: Mapping[str, Any]) -> str:
    read = [each for each in task.reads if each in datasets() and key in datasets()[each].references]
    files = ", ".join(f"{file} sha256 {digest}" for file, digest in entry.get("sha256", {}).items())
    if read:
        return f"{name}: data set {', '.join(read)} ({files})" if files else f"{name}: data set {', '.join(read)}"
    return f"{name}: method"
