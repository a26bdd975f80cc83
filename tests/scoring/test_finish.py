"""When a model is done: its replicas are ended, whatever they are doing."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.scoring.loop import START_ATTEMPTS, Loop
from evaluator.scoring.replica import ActiveReplica, LoopState, ModelState
from evaluator.scoring.summary import Summary
from evaluator.scoring.worker import Loaded
from evaluator_serving.rows import Encoded
from evaluator_serving.table import EncodedTable


@pytest.mark.parametrize(("scoring", "ended"), [(False, ["closing", "loading"]), (True, ["closing"])])
def test_a_replica_that_still_loads_is_ended_with_the_last_one_that_scores(scoring: bool, ended: list[str]) -> None:
    """While another one scores its last chunk it isn't: that one may die, and its chunk wait again."""
    said: list[Any] = []
    over: list[Any] = []
    run = SimpleNamespace(clear_model_failure=lambda name: None, merge_answers=lambda name: None)
    view = SimpleNamespace(state=lambda *words: said.append(words))
    replica_source = SimpleNamespace(end=over.append, reassign=lambda *_, **__: None)
    loop = Loop(run, view, replica_source, SimpleNamespace(), verify=True, strict=False)  # type: ignore[arg-type]
    prepared = SimpleNamespace(name="m", encoded=EncodedTable.of([Encoded("r", (), ())]), summary=Summary())
    model = ModelState(prepared)  # type: ignore[arg-type]
    model.work = SimpleNamespace(waiting=[])  # type: ignore[assignment]
    loaded = Loaded("cpu", {}, None)
    closing = ActiveReplica(model, "closing", 0, 0.0, loaded=loaded)  # type: ignore[arg-type]
    loading = ActiveReplica(model, "loading", 1, 0.0)  # type: ignore[arg-type]
    last = ActiveReplica(model, "scoring", 2, 0.0, loaded=loaded, in_flight=deque([(None, None)]))  # type: ignore[list-item, arg-type]
    loop._state = LoopState({"m": model}, [closing, loading, *([last] if scoring else [])])
    loop._closed(closing, free=True)
    assert over == ended
    assert loop._state.active_replicas == ([loading, last] if scoring else [])
    assert said == ([] if scoring else [("m", "done")])


@pytest.mark.parametrize("at_work", [False, True])
def test_starts_that_fail_end_a_model_that_no_other_replica_scores(at_work: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaths while loading, by chance or of one bad machine: what another replica can score needn't be lost."""
    asked: list[Any] = []
    given_up: list[str] = []
    replica_source = SimpleNamespace(end=lambda replica: None, reschedule=lambda active, state: asked.append(active.number))
    view = SimpleNamespace(state=lambda *words, **named: None)
    meter = SimpleNamespace(restarted=lambda name: None)
    loop = Loop(SimpleNamespace(), view, replica_source, meter, verify=True, strict=False)  # type: ignore[arg-type]
    monkeypatch.setattr(loop, "_give_up", lambda model, error: given_up.append(str(error)))
    model = ModelState(SimpleNamespace(name="m", encoded=EncodedTable.of([Encoded("r", (), ())])))  # type: ignore[arg-type]
    model.work = SimpleNamespace(waiting=["chunk"])  # type: ignore[assignment]
    scoring = ActiveReplica(model, "scoring", 9, 0.0, loaded=Loaded("cpu", {}, None))  # type: ignore[arg-type]
    loop._state = LoopState({"m": model}, [scoring] if at_work else [])
    for number in range(START_ATTEMPTS + 1):
        active = ActiveReplica(model, "loading", number, 0.0)  # type: ignore[arg-type]
        loop._state.active_replicas.append(active)
        loop._start_failed(active, "died while loading (killed)", START_ATTEMPTS)
        assert asked == list(range(min(number + 1, START_ATTEMPTS - 1)))
        assert len(given_up) == (0 if at_work else max(0, number + 2 - START_ATTEMPTS))
    assert loop._state.active_replicas == ([scoring] if at_work else [])
    assert all("5 starts in a row failed" in text for text in given_up[:1])
