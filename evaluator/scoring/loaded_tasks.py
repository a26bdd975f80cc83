"""A run's tasks with their samples, and the requests that they ask of models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evaluator.scoring.spec import RunSpec
from evaluator.tasks.base import Task
from evaluator.vocabulary import ORDER, Protocol_, Rendered, Samples
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Request


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with its samples, those within the limit."""

    task: Task
    samples: Samples


def load_tasks(spec: RunSpec) -> list[LoadedTask]:
    """Read and validate every data set of the run."""
    names = [task.name for task in spec.tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"task {name} is given twice: give each task once")
    for task in spec.tasks:
        if spec.protocol not in task.protocols:
            known = ", ".join(sorted(task.protocols))
            raise InputError(f"task {task.name} has no protocol {spec.protocol}: choose {known}, or remove the task")
    data = replace(spec.data, protocol=spec.protocol)
    return [LoadedTask(task, task.load_limited(data, spec.limit)) for task in spec.tasks]


class Renderer:
    """Renders each task once for each set of heads."""

    def __init__(self, tasks: list[LoadedTask], protocol: Protocol_) -> None:
        self._tasks = {loaded.task.name: loaded for loaded in tasks}
        self._protocol = protocol
        self._rendered: dict[tuple[str, frozenset[str]], Rendered] = {}
        self._requests: dict[tuple[tuple[str, frozenset[str]], ...], dict[str, Request]] = {}

    def render(self, task: str, heads: frozenset[str]) -> Rendered:
        """The task's requests for models with these heads."""
        if (task, heads) not in self._rendered:
            loaded = self._tasks[task]
            rendered = loaded.task.render(loaded.samples, heads, self._protocol)
            order = loaded.samples.frame.select("sample", ORDER, *(["id"] if "id" in loaded.samples.frame.columns else []))
            table = rendered.table.join(order, on="sample", how="left", maintain_order="left")
            self._rendered[task, heads] = replace(rendered, table=table)
        return self._rendered[task, heads]

    def requests(self, heads: Mapping[str, frozenset[str]]) -> dict[str, Request]:
        """Request id → request, of the tasks in `heads` for these heads of a model."""
        key = tuple(heads.items())  # many models are asked the same
        if key not in self._requests:
            rendered = [self.render(task, used) for task, used in heads.items()]
            self._requests[key] = {key: request for one in rendered for key, request in one.requests.items()}
        return self._requests[key]
