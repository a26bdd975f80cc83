"""A backend's process as seen by the parent; `messages` is the child's side."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Generic, Protocol, Self, TypeVar

PROGRAM = ("-m", "evaluator.bench.backends")


class ProcessJob(Protocol):
    """The job of a process: the backend's name, its number of threads (0: no limit), and its first line of input."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    def json(self) -> str: ...


JobT = TypeVar("JobT", bound=ProcessJob)


@dataclass(slots=True)
class BackendProcess(Generic[JobT]):
    """One backend: its process, its first answer, and the measurements of each slice.

    Attributes:
        seconds: time until the process was ready.
        ready: its first answer; error: why the backend failed, None if it did not.
        slices: slice number → measurements.
    """

    job: JobT
    process: subprocess.Popen[str]
    seconds: float = 0.0
    ready: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    slices: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def start(cls, job: JobT, program: Sequence[str] = PROGRAM, environment: Mapping[str, str] | None = None) -> Self:
        """Start Python's `program` and wait until it has loaded: no backend loads while another is timed."""
        variables = os.environ | {"TOKENIZERS_PARALLELISM": "false"} | dict(environment or {})
        if job.threads:
            variables["OMP_NUM_THREADS"] = str(job.threads)
        pipe, begun = subprocess.PIPE, time.perf_counter()
        command = [sys.executable, *program]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=variables)
        worker = cls(job, process)
        worker.ready = worker._request(job.json())
        worker.seconds = time.perf_counter() - begun
        return worker

    @property
    def status(self) -> str:
        """One line on its start."""
        return f"{self.job.name}: " + (f"can't run here: {self.error}" if self.error else f"ready in {self.seconds:.0f} s")

    def slice(self, number: int, line: str) -> None:
        """Score one slice. A backend that fails is skipped from then on."""
        answer = self._request(line)
        if self.error is None:
            self.slices[number] = answer

    def reload(self) -> float:
        """Seconds to load the model once more in the same process, 0 if unknown."""
        return float(self._request("reload").get("reload", 0.0))

    def measure(self) -> dict[str, float]:
        """Of the process that measures the machine: its current rates."""
        return self._request("now")

    def total(self, name: str) -> float:
        """Sum of a measurement over the slices; 0 if this backend does not report it."""
        return float(sum(answer.get(name, 0.0) for answer in self.slices.values()))

    def close(self) -> None:
        """End the process."""
        self._pipe(self.process.stdin).close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _request(self, line: str) -> dict[str, Any]:
        if self.error is not None:
            return {}
        try:
            print(line, file=self._pipe(self.process.stdin), flush=True)
            answer: dict[str, Any] = json.loads(self._pipe(self.process.stdout).readline())
        except (OSError, ValueError):
            self.error = f"its process ended with exit code {self.process.wait()}"
            return {}
        self.error = answer.get("error")
        return answer

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
