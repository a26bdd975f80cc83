"""What a bench asks of every backend: a task's real requests for one model, cut into slices of samples."""

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from evaluator.scoring.driver import check_engines
from evaluator.scoring.prepare import LoadedTask, PreparedModel, Renderer, load_tasks, prepare_model, source_of
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks import chosen_tasks, task
from evaluator.vocabulary import DataSource, Inputs, Protocol_
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Request


@dataclass(frozen=True, slots=True)
class BenchJob:
    """The job of one backend's process; it travels as JSON.

    Attributes:
        backend: `engine` or the name of a baseline (see `backends`).
        engine: that is measured, empty for a baseline.
        model: spec; task: name; limit: its samples; protocol, data: as in a run; languages: codes with commas, of some tasks.
        dtype, device, threads: how it runs.
        slices: parts into which the samples are cut.
        allow_pickle: the model's weights may be pickled files; trust_remote_code: its own repository's programs may be run.
    """

    backend: str
    engine: str
    model: str
    task: str
    limit: int
    data: str = ""
    languages: str = ""
    protocol: Protocol_ = "default"
    dtype: str = "float32"
    device: str = "auto"
    threads: int = 1
    slices: int = 4
    allow_pickle: bool = False
    trust_remote_code: bool = False

    @property
    def name(self) -> str:
        """What the backend is called in tables: the engine, with its dtype where it isn't float32."""
        base = self.engine or self.backend
        return base if self.dtype == "float32" else f"{base} {self.dtype}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From JSON."""
        return cls(**json.loads(text))

    def json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    def spec(self, folder: Path) -> RunSpec:
        """The run that asks the same."""
        options = EngineOptions(dtype=self.dtype, device=self.device)
        # A baseline is asked what the transformers engine is: its options are always there.
        model = ModelSpec(
            self.model,
            self.engine or "transformers",
            options=options,
            label="model",
            allow_pickle=self.allow_pickle,
            trust_remote_code=self.trust_remote_code,
        )
        data = DataSource(Path(self.data) if self.data else None)
        inputs = Inputs(languages=tuple(code for code in self.languages.split(",") if code))
        return RunSpec((model,), chosen_tasks((self.task,), inputs), folder, self.protocol, data, self.limit)


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """A model, its requests by id, and the ids of each slice; a request that samples share is in the first one's slice."""

    spec: RunSpec
    tasks: tuple[LoadedTask, ...]
    model: PreparedModel
    requests: Mapping[str, Request]
    slices: tuple[tuple[str, ...], ...]
    sentences: tuple[int, ...]
    """Samples of each slice."""

    @classmethod
    def of(cls, asked: BenchJob, folder: Path) -> Self:
        """As a run prepares it. Raises InputError for a model or task that can't be asked."""
        spec = asked.spec(folder)
        tasks = load_tasks(spec)
        renderer = Renderer(spec.protocol)
        model = prepare_model(spec.models[0], source_of(spec.models[0]), spec, tasks, renderer)
        known = {item.request for item in model.encoded}
        requests: dict[str, Request] = {}
        for loaded in tasks:
            made = renderer.render(loaded, model.heads[loaded.task.name]).requests
            requests |= {key: request for key, request in made.items() if key in known}
        table = model.tables[asked.task]
        samples = table["sample"].unique(maintain_order=True).to_list()
        place = {sample: number % asked.slices for number, sample in enumerate(samples)}
        slices: list[dict[str, None]] = [{} for _ in range(asked.slices)]
        seen: set[str] = set()
        for sample, request in table.select("sample", "request").iter_rows():
            if request in requests and request not in seen:
                seen.add(request)
                slices[place[sample]][request] = None
        counts = [sum(number == part for number in place.values()) for part in range(asked.slices)]
        return cls(spec, tuple(tasks), model, requests, tuple(map(tuple, slices)), tuple(counts))


def check(asked: BenchJob) -> None:
    """Raise InputError for a model, task or data that no backend could measure: each would find out in a process of its own."""
    if not task(asked.task).heads:
        raise InputError(f"{asked.task} asks no model: there is nothing to measure; choose another --task")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which engine is the fastest is to be seen
        any_engine = replace(asked, backend="engine", engine="auto")
        work = BenchWorkload.of(any_engine, Path(folder) / "run")
        if not min(work.sentences):
            few = f"{sum(work.sentences)} sentences of {asked.task} can't be cut into {asked.slices} slices"
            raise InputError(f"{few}: give fewer --slices or more --samples")
        check_engines([work.model])
