"""`--engine auto` never fails where the transformers engine works: an engine that it prefers can't load the model."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_models import tiny_model

from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.sweep.driver import SweepOptions, sweep
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator_serving import choose
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import ENGINES, EngineEntry
from evaluator_serving.rows import Row, Workload
from evaluator_serving.transformers_engine.engine import TransformersEngine


class Broken(TransformersEngine):
    """Prefers itself, and fails when it loads a model, as a graph with an operator that the runtime lacks does."""

    name = "broken"

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        raise RuntimeError("no kernel for head size 12")

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """Above all others."""
        return 9


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("way", ["run", "sweep"])
def test_a_model_that_the_preferred_engine_cannot_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool, way: str
) -> None:
    monkeypatch.setitem(ENGINES.own, "broken", f"{__name__}:Broken")
    monkeypatch.setattr(choose, "known_engines", lambda own: [EngineEntry("broken", "", Broken, "")])
    models = [ModelSpec(str(tiny_model("gpt2", tmp_path / "m", seed=0)), label="m")]
    if several:
        models.append(ModelSpec(str(tiny_model("gpt2", tmp_path / "n", seed=1)), "transformers", label="n"))
    spec = RunSpec(tuple(models), (task("gest-demo"),), tmp_path / "run", limit=4)
    with pytest.warns(
        UserWarning, match=r"m: engine broken fails \(.*no kernel for head size 12.*\), so transformers scores it"
    ):
        outcome = execute(spec) if way == "run" else sweep(spec, SweepOptions(ray="none"))
    assert not outcome.errors
    assert {name: entry["engine"] for name, entry in outcome.run.record["models"].items()} == dict.fromkeys(
        [model.label for model in models], "transformers"
    )
    assert scores_of(outcome.run, "gest-demo")["model"].n_unique() == len(models)
    assert outcome.run.failures().is_empty()
    assert not execute(spec).errors  # answered there, it stays there
