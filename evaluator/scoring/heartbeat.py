"""Heartbeats: whether the driver of a run is running, seen from any machine.

Every few seconds a driver writes to RUN/progress.json who it is, the time, and when it last made progress. On the same machine
the run's lock and the process's state are known too; on others only the heartbeat is.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

BEAT_EVERY = 10.0
"""Seconds between two heartbeats."""
SILENT_AFTER = 60.0
"""Seconds without a heartbeat after which a driver no longer counts as running: clocks of machines differ a little."""

DriverState = Literal["running", "stopped", "silent", "ended"]
"""stopped: its process is suspended. silent: its heartbeat has ceased, and its state is not known here."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A process: its machine's name and boot (one id from start to shut-down), its own number and start (Unix time)."""

    host: str
    boot: str
    process: int
    started: float

    @classmethod
    def here(cls) -> "Driver":
        """This process."""
        return cls(socket.gethostname(), _boot(), os.getpid(), psutil.Process().create_time())

    def record(self) -> dict[str, Any]:
        """For progress.json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is known of a run's driver: `progressed` is the Unix time of the last progress, `beat` of the last heartbeat."""

    state: DriverState
    driver: Driver | None
    beat: float | None
    progressed: float | None

    def quiet(self, now: float) -> float | None:
        """Seconds since the last progress, None where none is known."""
        return None if self.progressed is None else max(0.0, now - self.progressed)


def read_heartbeat(shown: Mapping[str, Any], *, held: bool, now: float | None = None, here: Driver | None = None) -> Heartbeat:
    """What progress.json (`shown`, empty where there is none) and the lock say.

    `held`: a process of this machine holds it; of a run on object storage, one of any machine.
    """
    now, here = time.time() if now is None else now, here or Driver.here()
    driver, beat, progressed = _read(shown)
    state: DriverState = "running" if held else "ended"
    if driver is not None and beat is not None and not shown.get("ended"):
        near = (driver.host, driver.boot) == (here.host, here.boot)
        fresh = now - beat <= SILENT_AFTER
        if near and held:
            state = _of_process(driver, fresh=fresh)
        elif not near:
            state = "running" if held or fresh else "silent"
    return Heartbeat(state, driver, beat, progressed)


def _of_process(driver: Driver, *, fresh: bool) -> DriverState:
    """The state of a process of this machine while the run is held here."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(driver.process)
        if abs(process.create_time() - driver.started) < 1.0:
            if process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                return "stopped"
            return "running" if fresh else "silent"
    return "running"  # another command holds the run, and has shown nothing yet


def _read(shown: Mapping[str, Any]) -> tuple[Driver | None, float | None, float | None]:
    """The parts of progress.json; None for what an older version didn't write, or what is damaged."""
    driver = None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        raw = shown["driver"]
        driver = Driver(str(raw["host"]), str(raw["boot"]), int(raw["process"]), float(raw["started"]))
    beat, progressed = (_number(shown.get(key)) for key in ("updated", "progressed"))
    return driver, beat, progressed


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boot(read: Callable[[], str] = Path("/proc/sys/kernel/random/boot_id").read_text) -> str:
    with contextlib.suppress(OSError):
        return read().strip()
    return str(int(psutil.boot_time()))
