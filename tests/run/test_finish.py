"""When a model is done: its replicas are ended, whatever they are doing."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.run.loop import Loop
from evaluator.run.replica import Member, Model, State
from evaluator.run.worker import Loaded


@pytest.mark.parametrize(("scoring", "ended"), [(False, ["closing", "loading"]), (True, ["closing"])])
def test_a_replica_that_still_loads_is_ended_with_the_last_one_that_scores(scoring: bool, ended: list[str]) -> None:
    """While another one scores its last chunk it isn't: that one may die, and its chunk wait again."""
    said: list[Any] = []
    over: list[Any] = []
    run = SimpleNamespace(clear_model_failure=lambda name: None)
    view = SimpleNamespace(state=lambda *words: said.append(words))
    supplier = SimpleNamespace(end=over.append, follow=lambda *_, **__: None)
    loop = Loop(run, view, supplier, SimpleNamespace(), verify=True, strict=False)  # type: ignore[arg-type]
    model = Model(SimpleNamespace(name="m", encoded=(1,), kinds={}))  # type: ignore[arg-type]
    model.work = SimpleNamespace(waiting=[])  # type: ignore[assignment]
    loaded = Loaded("cpu", {}, None)
    closing = Member(model, "closing", 0, 0.0, loaded=loaded)  # type: ignore[arg-type]
    loading = Member(model, "loading", 1, 0.0)  # type: ignore[arg-type]
    last = Member(model, "scoring", 2, 0.0, loaded=loaded, flight=deque([(None, None)]))  # type: ignore[list-item, arg-type]
    loop._state = State({"m": model}, [closing, loading, *([last] if scoring else [])])
    loop._closed(closing, free=True)
    assert over == ended
    assert loop._state.members == ([loading, last] if scoring else [])
    assert said == ([] if scoring else [("m", "done")])
