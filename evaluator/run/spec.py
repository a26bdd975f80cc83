"""What a run is asked to do, as values."""

from dataclasses import dataclass, field
from pathlib import Path

from evaluator.tasks.base import DataSource, Protocol_, Task
from evaluator_serving.engine import EngineOptions


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of a run.

    Attributes:
        spec: hub id, hub id with @revision, or local folder or GGUF file.
        engine: engine name or `auto`.
        chat_template: `none` (as published) or `user` (the prompt becomes the beginning of the assistant's turn).
        options: how the engine runs.
        label: name in every row of the results; made from the spec where it is empty.
    """

    spec: str
    engine: str = "auto"
    chat_template: str = "none"
    options: EngineOptions = field(default_factory=EngineOptions)
    label: str = ""

    @property
    def name(self) -> str:
        """The model's name in results: the label, else the hub id or the folder's name, with the chat template if any."""
        if self.label:
            return self.label
        path = Path(self.spec)
        local = path.exists() or self.spec.startswith((".", "/", "~"))
        name = path.expanduser().resolve().name.removesuffix(".gguf") if local else self.spec
        return name if self.chat_template == "none" else f"{name}+chat-{self.chat_template}"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A whole run: models × tasks under one protocol.

    Attributes:
        models, tasks: what to score; every model is scored on every task.
        out: the run's folder.
        protocol: `default` or `published` (what is asked of the models).
        data: where the data sets are.
        limit: score only this many samples of every task, spread over its groups (None: all).
        verify: check every engine against the transformers oracle on some of the run's own rows when it is loaded.
        skip_rows: record a request that can't be scored and go on (sweeps) instead of ending the model.
        command: the command line, for the record.
    """

    models: tuple[ModelSpec, ...]
    tasks: tuple[Task, ...]
    out: Path
    protocol: Protocol_ = "default"
    data: DataSource = field(default_factory=DataSource)
    limit: int | None = None
    verify: bool = True
    skip_rows: bool = False
    command: tuple[str, ...] = ()
