"""A backend's process as the measuring one sees it; `answering` is the inside."""

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
    """What a process is for: the backend's name, the threads that it may use (0: as many as it likes), its first line."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    def json(self) -> str: ...


Asked = TypeVar("Asked", bound=ProcessJob)


@dataclass(slots=True)
class BackendProcess(Generic[Asked]):
    """One backend: its process, what it said when it was ready, and what each slice took.

    Attributes:
        seconds: from the process's start until it was ready.
        ready: its first answer; error: why there is none.
        slices: what the slices took, by number.
    """

    asked: Asked
    process: subprocess.Popen[str]
    seconds: float = 0.0
    ready: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    slices: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def start(cls, asked: Asked, program: Sequence[str] = PROGRAM, environment: Mapping[str, str] | None = None) -> Self:
        """Start Python's `program` and wait until it has loaded, so that nothing loads while something else is timed."""
        known = os.environ | {"TOKENIZERS_PARALLELISM": "false"} | dict(environment or {})
        if asked.threads:
            known["OMP_NUM_THREADS"] = str(asked.threads)
        pipe, begun = subprocess.PIPE, time.perf_counter()
        command = [sys.executable, *program]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=known)
        worker = cls(asked, process)
        worker.ready = worker._ask(asked.json())
        worker.seconds = time.perf_counter() - begun
        return worker

    @property
    def said(self) -> str:
        """How its start went, in a line."""
        return f"{self.asked.name}: " + (f"can't run here: {self.error}" if self.error else f"ready in {self.seconds:.0f} s")

    def slice(self, number: int, line: str) -> None:
        """Let it score one slice; a backend that fails is left out from then on."""
        answer = self._ask(line)
        if self.error is None:
            self.slices[number] = answer

    def again(self) -> float:
        """Seconds to load the model once more in the same process, 0 where that isn't known."""
        return float(self._ask("again").get("again", 0.0))

    def measure(self) -> dict[str, float]:
        """The ceilings' process: the machine's rates now."""
        return self._ask("now")

    def total(self, name: str) -> float:
        """Sum over the slices; 0 for what this backend doesn't count."""
        return float(sum(answer.get(name, 0.0) for answer in self.slices.values()))

    def close(self) -> None:
        """End the process."""
        self._pipe(self.process.stdin).close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, line: str) -> dict[str, Any]:
        if self.error is not None:
            return {}
        try:
            print(line, file=self._pipe(self.process.stdin), flush=True)
            answer: dict[str, Any] = json.loads(self._pipe(self.process.stdout).readline())
        except (OSError, ValueError):
            self.error = f"its process ended with {self.process.wait()}"
            return {}
        self.error = answer.get("error")
        return answer

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
