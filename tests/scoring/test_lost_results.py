"""A process that dies takes with it what it had just scored: the chunk before a deadly one isn't blamed for that."""

from pathlib import Path

import pytest

from evaluator.scoring.driver import prepare, score_models
from evaluator.scoring.local import Later, LocalReplica, ThisProcess
from evaluator.scoring.record import record
from evaluator.scoring.replica import ActiveReplica, Assignment, Call, LoopState, LostError
from evaluator.scoring.score import Scored
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.scoring.worker import Worker
from evaluator_serving import engine
from evaluator_serving.chunks import Chunk
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model


class Mortal(LocalReplica):
    """Dies of the poisonous request before what it scored just before has reached anybody."""

    def __init__(self, worker: Worker, poison: str) -> None:
        super().__init__(worker, {})
        self.poison = poison
        self.queue: list[Chunk] = []

    def score(self, chunk: Chunk) -> Call[Scored]:
        self.queue.append(chunk)
        return Later(self._scored, chunk)

    def _scored(self, chunk: Chunk) -> Scored:
        if any(item.request == self.poison for one in self.queue[:2] for item in one.encoded):
            raise LostError("killed")
        self.queue.remove(chunk)
        return self._worker.score(chunk)


class Mortals(ThisProcess):
    """One such replica after the other, each with two chunks in flight."""

    depth = 2

    def __init__(self, poison: str) -> None:
        super().__init__()
        self.poison = poison
        self.most = 0

    def _following(self, state: LoopState) -> list[Assignment]:
        return [Assignment(assignment.model, Mortal(self._worker, self.poison)) for assignment in super()._following(state)]

    def reschedule(self, active: ActiveReplica, state: LoopState) -> None:
        self.most = max(self.most, active.number)


def test_of_a_deadly_request_alone_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.CHUNK_TOKENS, "cpu", 200)
    samples = write_samples(tmp_path / "own.csv", sentences(60))
    model = ModelSpec(str(tiny_model("gpt2", tmp_path / "gpt2")), "transformers", label="m")
    spec = RunSpec((model,), (custom(samples),), tmp_path / "run", verify=False)
    ready = prepare(spec)
    (prepared,) = ready.models
    run = record(spec, ready.tasks, ready.models)
    poison = prepared.encoded[70].request
    mortals = Mortals(poison)
    with run.locked():
        assert not score_models(run, ready, spec, lambda view: mortals)
    assert run.failures()["request"].to_list() == [poison]
    assert len(run.done("m")) == len(prepared.encoded) - 1
    assert 5 <= mortals.most <= 7, "deaths"
