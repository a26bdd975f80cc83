"""A replica that is ended while its model has work: what it holds is scored, the others do the rest, its process goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.scoring.driver import prepare, score_models
from evaluator.scoring.local import LocalReplica, ThisProcess
from evaluator.scoring.record import record
from evaluator.scoring.replica import ActiveReplica, Assignment, Call, LoopState, Replica
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.worker import Worker
from evaluator_serving import engine
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

DEPTH = 2


class TwoReplicas(ThisProcess):
    """Two replicas of the first model, of which one is released when the other (`loading`) or itself has loaded."""

    depth = DEPTH

    def __init__(self, *, loading: bool) -> None:
        super().__init__()
        self.loading = loading
        self.turn = 0
        self.active_replicas: list[ActiveReplica] = []
        self.named: list[ActiveReplica] = []
        self.ended: list[Replica] = []

    def replica(self) -> LocalReplica:
        return LocalReplica(Worker(), {})

    def next_assignments(self, state: LoopState) -> Sequence[Assignment]:
        self.active_replicas = self.active_replicas or list(state.active_replicas)
        if state.active_replicas:
            return []
        name = next(name for name, model in state.models.items() if model.has_work)
        return [Assignment(name, self.replica()) for _ in range(2 if name == "first" else 1)]

    def wait(self, calls: Sequence[Call[Any]]) -> Call[Any] | None:
        self.turn += 1
        return calls[0 if self.loading else self.turn % len(calls)]

    def preempted(self) -> Sequence[ActiveReplica]:
        if self.named or not self.active_replicas or self.active_replicas[0].scored == 0:
            return []
        self.named = [self.active_replicas[1 if self.loading else 0]]
        return self.named

    def reassign(self, active: ActiveReplica, state: LoopState, *, free: bool) -> Assignment | None:
        second = state.models["second"]
        return Assignment("second", active.replica) if second.has_work and not state.replicas_of(second) else None

    def end(self, replica: Replica) -> None:
        self.ended.append(replica)


@pytest.mark.parametrize("loading", [False, True])
def test_a_released_replica_takes_no_more_chunks(loading: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.CHUNK_TOKENS, "cpu", 100)
    samples = write_samples(tmp_path / "own.csv", sentences(60))
    folders = {name: tiny_model(kind, tmp_path / name) for name, kind in (("first", "gpt2"), ("second", "llama"))}
    models = tuple(ModelSpec(str(folder), "transformers", label=name) for name, folder in folders.items())
    spec = RunSpec(models, (custom(samples),), tmp_path / "run", verify=False)
    ready = prepare(spec)
    run = record(spec, ready.tasks, ready.models)
    two = TwoReplicas(loading=loading)
    with run.locked():
        errors = score_models(run, ready, spec, lambda view: two)
    assert not errors
    for prepared in ready.models:
        parts = run.answers_folder(prepared.name).glob("*/part-*")
        stored = pl.concat(map(pl.read_parquet, parts)).select("request", "candidate")
        assert stored.is_duplicated().sum() == 0
        assert len(run.done(prepared.name)) == len(prepared.encoded)
    chunks = run.timings().group_by("model", "worker").len()
    done = {(name, worker): count for name, worker, count in chunks.rows()}
    if loading:
        assert set(done) == {("first", "0"), ("second", "0")}
        assert two.ended[0] is two.named[0].replica, "at once"
    else:
        assert done["first", "0"] <= 1 + DEPTH < done["first", "1"]
        assert ("second", "0") in done
        assert two.active_replicas[0].replica is two.named[0].replica
