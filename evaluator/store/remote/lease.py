"""The lease of a run on object storage: an object that its holder renews.

Every step is a conditional PUT, so that one of several contenders succeeds. Clocks are not compared: a lease that is not
renewed while a contender watches it for LEASE seconds belongs to a dead process and is taken over. Times in which the storage
does not respond, or the watching process does not run, do not count, because the holder cannot renew then either. The holder
writes to the run only if it has renewed the lease within half of LEASE, so a holder that was cut off notices before it writes.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from evaluator.store.remote.objects import START, WORK, ConflictError, Object, Objects, RemoteError, UnreachedError, Version
from evaluator.store.settings import seconds
from evaluator_serving.errors import NotNowError

NAME = "lease.json"
LEASE_VARIABLE = "EVALUATOR_LEASE"
_POLL = 0.5


def lease_seconds() -> float:
    """Seconds without renewal after which a driver is considered dead (EVALUATOR_LEASE, equal for all writers of a run)."""
    return seconds(LEASE_VARIABLE, 60, least=1)


class Lease:
    """The lease of one run. `count` returns the number of stored parts; `beside` is called with every renewal."""

    def __init__(self, objects: Objects, count: Callable[[], int], beside: Callable[[], None]) -> None:
        self._objects = objects
        self._count = count
        self._beside = beside
        self._seconds = lease_seconds()
        self._holder = secrets.token_hex(8)
        self._floor = 0
        self._beats = 0
        self._version: Version | None = None
        self._fresh = 0.0
        self._lost = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, to its knowledge."""
        return self._version is not None

    def acquire(self) -> None:
        """Acquire the lease, waiting up to LEASE seconds for a dead holder. Raises NotNowError if another process holds it."""
        found = self._objects.get(NAME)
        if found is not None and not lease_content(found).get("released"):
            found = self._watch(found)
        self._lost = False
        known = lease_content(found).get("answers") if found else 0
        self._floor = known if isinstance(known, int) else 0
        try:
            self._put(found.version if found else None, START)
        except ConflictError:
            raise self._conflict(self._objects.get(NAME)) from None
        if not self._objects.keeps_conditions(NAME):
            raise RemoteError(
                f"{self._objects.url}: this storage ignores conditional writes (If-None-Match), which are needed "
                "to exclude a second writer: use a storage that supports them, or a folder"
            )
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def counted(self) -> None:
        """Report this process's own count from now on, since the previous holder's parts have been listed."""
        self._floor = 0

    def check(self) -> None:
        """Verify before a write that the lease is still held. Raises RemoteError if another process holds it."""
        if not self._lost and time.monotonic() - self._fresh > self._seconds / 2:
            self._beat(WORK)
        if self._lost:
            raise UnreachedError(
                f"another process took over {self._objects.url} while this one was disconnected: this one "
                "stops writing, and finished work is kept"
            )

    def release(self) -> None:
        """Release the lease; if the storage does not respond, it expires."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        if not self._lost:
            try:
                with contextlib.suppress(ConflictError):  # another process took over
                    self._put(self._version, beat_seconds(self._seconds), released=True)
            except RemoteError as error:
                waits = f"so the next command waits up to {self._seconds:.0f} s for it"
                warnings.warn(f"the lease of {self._objects.url} was not released, {waits}: {error}", stacklevel=2)
        self._version = None

    def _watch(self, found: Object) -> Object:
        """Watch another process's lease until it is renewed (raises) or counts as dead. Returns its last state."""
        taken = self._conflict(found)
        patient = threading.Timer(2 * beat_seconds(self._seconds), self._say_waiting, [str(found_by(found))])
        patient.daemon = True
        patient.start()
        try:
            for now in _looks(self._objects, self._seconds):
                if now is None or now.version != found.version:
                    if now is not None and lease_content(now).get("released"):
                        return now
                    raise taken
            return found
        finally:
            patient.cancel()

    def _say_waiting(self, holder: str) -> None:
        warnings.warn(
            f"{self._objects.url} was being written by {holder}, which has no heartbeat: it is taken over after "
            f"{self._seconds:.0f} s",
            stacklevel=2,
        )

    def _conflict(self, found: Object | None) -> NotNowError:
        holder = found_by(found) if found else "another process"
        return NotNowError(f"{self._objects.url} is being written by {holder}: wait for it or use another --out")

    def _renew(self) -> None:
        while not self._stop.wait(beat_seconds(self._seconds)):
            with contextlib.suppress(RemoteError):  # whoever writes next finds out
                self._beat(0)
            if self._lost:
                return
            self._beside()

    def _beat(self, patience: float) -> None:
        with self._lock:
            try:
                self._put(self._version, patience)
            except ConflictError:
                self._lost = True

    def _put(self, known: Version | None, patience: float, *, released: bool = False) -> None:
        begun = time.monotonic()
        self._beats += 1
        body: dict[str, Any] = {
            "holder": self._holder,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "beats": self._beats,
            "answers": max(self._count(), self._floor),
            "released": released,
        }
        content = json.dumps(body).encode()
        try:
            self._version = self._objects.put(NAME, content, known, patience=patience)
        except ConflictError:
            now = self._objects.get(NAME, patience=patience)
            if now is None or lease_content(now).get("holder") != self._holder:
                raise
            # One of our own renewals, whose response was lost.
            self._version = self._objects.put(NAME, content, now.version, patience=patience)
        self._fresh = begun


def beat_seconds(lease: float) -> float:
    """Seconds between renewals."""
    return lease / 12


def lease_content(lease: Object) -> dict[str, Any]:
    """The content of a lease; empty if it is damaged."""
    try:
        body = json.loads(lease.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def found_by(lease: Object) -> str:
    """Description of the holder of a lease."""
    body = lease_content(lease)
    return f"process {body.get('process', '?')} on {body.get('host', 'another machine')}"


def is_alive(objects: Objects) -> bool:
    """Whether a process holds and renews the lease. Unless it was released, it is watched for two renewals."""
    seconds = lease_seconds()
    found = objects.get(NAME)
    if found is None or lease_content(found).get("released"):
        return False
    for now in _looks(objects, 2 * beat_seconds(seconds) + 1):
        if now is None or now.version != found.version:
            return now is not None and not lease_content(now).get("released")
    return False


def _looks(objects: Objects, seconds: float) -> Iterator[Object | None]:
    """Yield the lease repeatedly until it has been watched for so many seconds. A poll counts for two intervals at most."""
    watched = 0.0
    while watched < seconds:
        begun = time.monotonic()
        time.sleep(_POLL)
        yield objects.get(NAME)
        watched += min(time.monotonic() - begun, 2 * _POLL)
