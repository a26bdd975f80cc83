"""How far a run has come: for the person at the terminal, and for `evaluator status` in another shell."""

import contextlib
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from evaluator import logs
from evaluator.scoring.heartbeat import BEAT_EVERY, Driver
from evaluator.store.files import write_json
from evaluator_serving.chunks import Chunk

State = Literal["waiting", "loading", "running", "done", "failed"]
PLAIN_EVERY = 60.0
"""Seconds between plain lines where there is no terminal."""
FILE_EVERY = 1.0
"""Least seconds between writes of progress.json."""


@dataclass(frozen=True, slots=True)
class ModelProgress:
    """One model: its state and counts of requests; `rate` in requests per second over the time it has been scoring."""

    name: str
    total: int
    done: int
    failed: int = 0
    state: State = "waiting"
    rate: float = 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the model is done at its present rate, None if there is no rate yet."""
        missing = self.total - self.done - self.failed
        return missing / self.rate if self.rate > 0 else None


class ProgressView:
    """Shows progress on stderr (a live bar a model on a terminal, else a line a minute) and in RUN/progress.json.

    The file is written every few seconds in any case: it is also this process's heartbeat (see `heartbeat`).
    """

    def __init__(self, folder: Path, models: list[ModelProgress]) -> None:
        self._folder = folder
        self._driver = Driver.here().record()
        self._progressed = time.time()
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="progress.json", daemon=True)
        self._models = {m.name: m for m in models}
        self._started: dict[str, tuple[float, int]] = {}
        self._plain = 0.0
        self._written = 0.0
        self._waiting = ""
        self._bars: Progress | None = None
        self._ids: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not logs.is_json():
            self._bars = Progress(
                TextColumn("{task.description}", style="bold"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                TextColumn("{task.fields[state]}"),
                console=Console(stderr=True),
            )
            for m in self._models.values():
                self._ids[m.name] = self._bars.add_task(
                    m.name, total=m.total, completed=m.done, state=m.state, rate="", start=False
                )
            self._bars.start()
        self._write(force=True)
        self._beats.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._ended.set()
        self._beats.join()
        with contextlib.suppress(OSError):  # a full disk must not hide the error that it caused
            self._write(force=True)

    def wait(self, what: str) -> None:
        """The run waits for something (`what`), and has not begun to score: said at once, and by `evaluator status`."""
        self._waiting = what
        logs.line(what, run=self._folder.name)
        self._write(force=True)

    def state(self, name: str, state: State, note: str = "", *, replica: int | None = None, chunk: Chunk | None = None) -> None:
        """A model is now `state`; plain output says so at once. The note may be about one replica, and one chunk of its."""
        model = self._models[name] = replace(self._models[name], state=state)
        if state == "running":
            self._started[name] = (time.monotonic(), model.done)
        if self._bars is not None:
            if state in ("loading", "running"):
                self._bars.start_task(self._ids[name])
            self._bars.update(self._ids[name], state=state)
        if note or self._bars is None:
            count = "" if self._bars is not None else f" ({model.done}/{model.total})"
            self._line(name, f"{note or state}{count}", replica, chunk)
        self._progressed = time.time()
        self._write(force=True)

    def advance(self, name: str, done: int, failed: int = 0, *, replica: int | None = None, chunk: Chunk | None = None) -> None:
        """`done` more requests of a model have been answered and stored (by a replica, of a chunk)."""
        begun, before = self._started[name]
        model = self._models[name]
        now = time.monotonic()
        rate = (model.done + done - before) / max(now - begun, 1e-9)
        model = self._models[name] = replace(model, done=model.done + done, failed=model.failed + failed, rate=rate)
        if self._bars is not None:
            self._bars.update(self._ids[name], completed=model.done, rate=f"{rate:.1f}/s")
        elif now - self._plain >= PLAIN_EVERY:
            left = f", {model.left:.0f} s left" if model.left is not None else ""
            self._line(name, f"{model.done}/{model.total}, {rate:.1f}/s{left}", replica, chunk)
            self._plain = now
        self._progressed = time.time()
        self._write()

    def _line(self, model: str, text: str, replica: int | None, chunk: Chunk | None) -> None:
        logs.line(text, run=self._folder.name, model=model, replica=replica, chunk=chunk.name if chunk else "")

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_EVERY):
            with contextlib.suppress(OSError):  # the loop will meet it
                self._write(force=True)

    def _write(self, *, force: bool = False) -> None:
        with self._writing:
            now = time.monotonic()
            if force or now - self._written >= FILE_EVERY:
                heartbeat = {"driver": self._driver, "progressed": self._progressed, "ended": self._ended.is_set()}
                models = [asdict(m) for m in list(self._models.values())]
                waiting = {"waiting": self._waiting} if self._waiting and not self._ended.is_set() else {}
                write_json(self._folder / "progress.json", {"updated": time.time(), **heartbeat, **waiting, "models": models})
                self._written = now
