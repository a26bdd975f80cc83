"""What engines are sized for and chunks are cut for: the same in this process and on Ray, and as an engine says of itself."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from evaluator.scoring.driver import execute, prepare
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator_serving.chunks import cut
from evaluator_serving.engine import CHUNK_TOKENS, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.openai_engine.engine import OpenAIEngine
from evaluator_serving.opening import open_engine
from evaluator_serving.registry import ENGINES
from evaluator_serving.rows import Row, Workload
from evaluator_serving.transformers_engine.engine import TransformersEngine
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.tiny_models import tiny_model

CARD = "Some Card 80GB"
CPU_TOKENS = 4096


class OnACard(TransformersEngine):
    """Says of itself what the transformers engine says on a GPU, and keeps what it is sized for."""

    workloads: list[tuple[list[Row], Workload]] = []  # noqa: RUF012

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        assert workload is not None
        super().__init__(source, options, rows)
        self.device_kind = "cuda"
        self.workloads.append((list(rows), workload))

    def details(self) -> dict[str, Any]:
        return super().details() | {"device": CARD}


class Silent(TransformersEngine):
    """An engine that doesn't say where it computes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        del self.device_kind


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    module = ModuleType("made_up_engines")
    module.OnACard, module.Silent = OnACard, Silent  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "made_up_engines", module)
        for name in ("OnACard", "Silent"):
            patch.setitem(ENGINES.own, name, f"made_up_engines:{name}")
        patch.setitem(CHUNK_TOKENS, "cpu", CPU_TOKENS)
        yield


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """More than CPU_TOKENS, for a model so small that only they limit its chunks."""
    folder = tmp_path_factory.mktemp("sizing")
    samples = write_samples(folder / "own.csv", sentences(400))
    model = tiny_model("gpt2", folder / "gpt2")
    return RunSpec((ModelSpec(str(model), "OnACard"),), (custom(samples),), folder / "run", verify=False)


@pytest.fixture(scope="module")
def model(spec: RunSpec) -> PreparedModel:
    """The run's model before anything is scored."""
    return prepare(replace(spec, out=spec.out.with_name("new"))).models[0]


@pytest.fixture(scope="module")
def run(spec: RunSpec) -> Run:
    """The run, scored in this process."""
    return execute(spec).run


def test_chunks_are_cut_for_the_device_that_the_engine_says(run: Run, model: PreparedModel) -> None:
    assert run.record["models"]["gpt2"]["engine_details"]["device"] == CARD
    assert len(cut(model.encoded, TransformersEngine.chunk_tokens(model.source.parameters, "cpu"))) > 1
    assert run.timings().height == 1, "a GPU's chunk holds them all"


def test_an_engine_is_sized_by_the_whole_run(run: Run, model: PreparedModel) -> None:
    """It is loaded with some of the rows only."""
    ((rows, workload),) = OnACard.workloads
    lengths = [len(row.ids) for item in model.encoded for row in item.rows]
    assert workload.longest == max(lengths)
    assert workload.tokens > 64 * max(lengths), "more than a handful of rows has"
    assert sum(len(row.ids) for row in rows) < workload.tokens


def test_a_servers_chunk_fills_its_connections_whatever_the_model() -> None:
    """On a CPU a chunk of a model of 7 billion parameters is 256 tokens: one request at a time to a server that takes 32."""
    assert TransformersEngine.chunk_tokens(7_000_000_000, "cpu") == 256
    assert OpenAIEngine.chunk_tokens(7_000_000_000, "server") == OpenAIEngine.chunk_tokens(1000, "server") == 32 * 32 * 32


def test_an_engine_of_ones_own_has_to_say_its_device(model: PreparedModel) -> None:
    with pytest.raises(InputError, match="has an invalid device_kind"):
        open_engine("Silent", model.source, EngineOptions(), model.summary.rows)
