"""The work of a bench: a task's real requests for one model, cut into slices of samples, the same for every backend."""

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from evaluator.scoring.driver import check_engines
from evaluator.scoring.encodings import Encodings
from evaluator.scoring.loaded_tasks import LoadedTask, Renderer, load_tasks
from evaluator.scoring.model_setup import source_of
from evaluator.scoring.prepare import ask_model, prepare_model
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks import chosen_tasks, task
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Request


@dataclass(frozen=True, slots=True)
class BenchJob:
    """The job of one backend's process, sent as JSON.

    Attributes:
        backend: `engine` or the name of a baseline (see `backends`).
        engine: the engine to measure; empty for a baseline.
        model: spec; task: name; limit: number of samples; protocol, data: as in a run; languages: codes, comma-separated.
        dtype, device, threads: where and how the backend runs.
        slices: number of parts into which the samples are cut.
        allow_pickle: pickled weights may be loaded; trust_remote_code: code from the model's repository may be run.
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
    def own_dtype(self) -> str:
        """The dtype that this backend computes in: baselines do not know bf16x2, and give its numbers in float32."""
        return "float32" if self.dtype == "bf16x2" and not self.engine else self.dtype

    @property
    def name(self) -> str:
        """The backend's name in tables: the engine, with its dtype unless it is float32."""
        base = self.engine or self.backend
        return base if self.own_dtype == "float32" else f"{base} {self.own_dtype}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From JSON."""
        return cls(**json.loads(text))

    def json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    def spec(self, folder: Path) -> RunSpec:
        """The equivalent run."""
        options = EngineOptions(dtype=self.dtype, device=self.device)
        # A baseline scores the requests of the transformers engine, which is always installed.
        model = ModelSpec(
            self.model,
            self.engine or "transformers",
            options=options,
            label="model",
            allow_pickle=self.allow_pickle,
            trust_remote_code=self.trust_remote_code,
        )
        data = DataSource(Path(self.data) if self.data else None)
        languages = tuple(code for code in self.languages.split(",") if code)
        return RunSpec((model,), chosen_tasks((self.task,), languages=languages), folder, self.protocol, data, self.limit)


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """A model, its requests by id, and each slice's ids. A request shared by several samples is in the first one's slice."""

    spec: RunSpec
    tasks: tuple[LoadedTask, ...]
    model: PreparedModel
    requests: Mapping[str, Request]
    slices: tuple[tuple[str, ...], ...]
    sentences: tuple[int, ...]
    """Samples of each slice."""

    @classmethod
    def of(cls, job: BenchJob, folder: Path) -> Self:
        """Prepare the workload as a run does. Raises InputError for a model or task that cannot be scored."""
        spec = job.spec(folder)
        tasks = load_tasks(spec)
        renderer = Renderer(tasks, spec.protocol)
        unencoded = ask_model(spec.models[0], source_of(spec.models[0]), spec, tasks, renderer)
        model = prepare_model(unencoded, spec, tasks, Encodings())
        encoded = set(model.encoded.requests)
        requests = {key: request for key, request in renderer.requests(model.heads).items() if key in encoded}
        table = model.tables[job.task]
        samples = table["sample"].unique(maintain_order=True).to_list()
        place = {sample: number % job.slices for number, sample in enumerate(samples)}
        slices: list[dict[str, None]] = [{} for _ in range(job.slices)]
        assigned: set[str] = set()
        for sample, request in table.select("sample", "request").iter_rows():
            if request in requests and request not in assigned:
                assigned.add(request)
                slices[place[sample]][request] = None
        counts = [sum(number == part for number in place.values()) for part in range(job.slices)]
        return cls(spec, tuple(tasks), model, requests, tuple(map(tuple, slices)), tuple(counts))


def check(job: BenchJob) -> None:
    """Raise InputError for a model, task or data set that no backend could measure, before a process per backend starts."""
    if not task(job.task).heads:
        raise InputError(f"task {job.task} runs no model, so there is nothing to measure: choose another --task")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the choice of engine: the bench decides which is fastest
        any_engine = replace(job, backend="engine", engine="auto")
        work = BenchWorkload.of(any_engine, Path(folder) / "run")
        if not min(work.sentences):
            what = f"{sum(work.sentences)} sentences of {job.task} can't be cut into {job.slices} slices"
            raise InputError(f"{what}: give fewer --slices or more --samples")
        check_engines([work.model])
