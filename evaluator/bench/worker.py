"""A way's process as the measuring one sees it."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import IO, Any, Self

from evaluator.bench.asked import Asked


@dataclass(slots=True)
class Worker:
    """One way: its process, what it said when it was ready, and what each slice took.

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
    def start(cls, asked: Asked) -> Self:
        """Start it and wait until it has loaded, so that nothing loads while something else is timed."""
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        if asked.threads:
            environment["OMP_NUM_THREADS"] = str(asked.threads)
        command = [sys.executable, "-m", "evaluator.bench.ways"]
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        worker = cls(asked, process)
        worker.ready = worker._ask(asked.json())
        worker.seconds = time.perf_counter() - begun
        return worker

    def slice(self, number: int) -> None:
        """Let it score one slice; a way that fails is left out from then on."""
        answer = self._ask(str(number))
        if self.error is None:
            self.slices[number] = answer

    def again(self) -> float:
        """Seconds to load the model once more in the same process, 0 where that isn't known."""
        return float(self._ask("again").get("again", 0.0))

    def measure(self) -> dict[str, float]:
        """The ceilings' process: the machine's rates now."""
        return self._ask("now")

    def total(self, name: str) -> float:
        """Sum over the slices; 0 for what this way doesn't count."""
        return float(sum(answer.get(name, 0.0) for answer in self.slices.values()))

    def numbers(self) -> dict[str, list[float]]:
        """All log-probabilities by request."""
        return {key: values for answer in self.slices.values() for key, values in answer["numbers"].items()}

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
