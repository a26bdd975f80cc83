"""Skip rules: which tasks and samples a model cannot be scored on."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.tasks.base import Task
from evaluator_serving.errors import InputError, ModelError

CHAT = "chat"
"""The ability of generative models to answer in words."""


def abilities(heads: frozenset[str]) -> frozenset[str]:
    """The heads of requests that a model with these heads can answer."""
    return heads | {CHAT} if "causal" in heads else heads


@dataclass(frozen=True, slots=True)
class Skipped:
    """The samples of one task that a model cannot score.

    Attributes:
        samples: number of samples with at least one such request; of: number of all samples.
        whole: whether no request of the task can be scored.
        reason: the reason for the first one.
    """

    samples: int
    of: int
    whole: bool
    reason: str

    def too_much(self, task: Task) -> bool:
        """Whether so many samples are skipped that the whole task is.

        A task that `skips_unscorable` samples expects many of them: it is skipped only if no request is left.
        """
        if task.skips_unscorable:
            return self.whole
        return PendingChunks.hopeless(self.samples, self.of)

    def __str__(self) -> str:
        more = f" (and {self.samples - 1:,} more of its {self.of:,} samples cannot be scored)" if self.samples > 1 else ""
        return self.reason + more


def missing_head(task: Task, heads: frozenset[str], spec: str) -> str | None:
    """Why a model with these heads cannot be scored on the task, None if it can."""
    if task.heads & heads:
        return None
    wanted, has = " or ".join(sorted(task.heads)), ", ".join(sorted(heads - {CHAT} or heads)) or "none"
    return f"task {task.name} needs a model with a {wanted} head, {spec} has {has}"


def reasons(
    refused: Mapping[str, InputError], tables: Mapping[str, pl.DataFrame], name: str, *, strict: bool
) -> dict[str, str]:
    """Request id → reason, of requests that the model `name` cannot score; with `strict` the first one raises InputError."""
    names = name_samples(tables, refused)
    for request, error in refused.items() if strict else ():
        kind = ModelError if isinstance(error, ModelError) else InputError
        raise kind(f"{name}: {names[request]}: {error}") from error
    return {request: f"{names[request]}: {error}" for request, error in refused.items()}


def skipped_by_task(tables: Mapping[str, pl.DataFrame], refused: Mapping[str, str]) -> dict[str, Skipped]:
    """Task → its samples that cannot be scored, for tasks that have some."""
    found = {}
    for task, table in tables.items():
        lost = table.filter(pl.col("request").is_in(list(refused)))
        if lost.height:
            of = table["sample"].n_unique()
            found[task] = Skipped(lost["sample"].n_unique(), of, lost.height == table.height, refused[lost["request"][0]])
    return found


def name_samples(tables: Mapping[str, pl.DataFrame], requests: Collection[str]) -> dict[str, str]:
    """Request id → the first task, sample and template that it comes from, in words.

    For all of them at once: there may be thousands, and each table is scanned once.
    """
    names = {request: f"request {request}" for request in requests}
    left = set(requests)
    for task, table in tables.items() if left else ():
        hits = table.filter(pl.col("request").is_in(list(left))).unique("request", keep="first")
        for hit in hits.iter_rows(named=True):
            example = f" (example {hit['example']})" if "example" in hit else ""
            names[hit["request"]] = f"{task}, sample {hit['sample']}{example}, template {hit['template']}"
        left.difference_update(hits["request"])
    return names


def useless(name: str, reasons: Iterable[str]) -> ModelError:
    """The error of a model that cannot be scored on any of its tasks, for these reasons."""
    return ModelError(f"{name}: {'; '.join(reasons)}; choose another model or task")
