"""Locks between processes of one machine, on every system.

Locks are visible to all processes, and a killed process releases them. With `flock`, checking needs no write permission. Where
`flock` is not available, a marker file names the owner (host, process, start time): a dead owner on this machine is replaced,
and waiting for another one is limited.
"""

import contextlib
import errno
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, MarkerSoftFileLock, Timeout

fcntl: Any
try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

PATIENCE = 60.0
"""Seconds to wait where the system doesn't free what its dead holder held. Nobody holds what others wait for that long."""
_NO_FLOCK = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What network file systems say that are mounted without it."""


class TakenError(OSError):
    """Another process holds the lock; `holder` describes it as far as known."""

    def __init__(self, path: Path, holder: str = "another process") -> None:
        super().__init__(f"{path} is held by {holder}")
        self.holder = holder


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold `path`, which is created if missing, while the body runs. Raises TakenError if it is held, unless `wait`.

    Raises OSError if the folder cannot be written.
    """
    with contextlib.ExitStack() as lock:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        lock.callback(os.close, handle)
        try:
            by_system = _flock(handle, shared=False, wait=wait)
        except BlockingIOError as error:
            raise TakenError(path) from error
        if not by_system:
            lock.enter_context(_owned(path, PATIENCE if wait else 0.0))
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds `path` now."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # nobody ever held it
        return False
    try:
        if _flock(handle, shared=True, wait=False):
            return False
        with _owned(path, 0.0):
            return False
    except (BlockingIOError, TakenError):
        return True
    except OSError:  # a folder that can only be read: nobody can tell
        return False
    finally:
        os.close(handle)


def _flock(handle: int, *, shared: bool, wait: bool) -> bool:
    """Lock an open file until it is closed; False if `flock` is not supported. Raises BlockingIOError as `flock` does."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_FLOCK:
            return False
        raise
    return True


@contextlib.contextmanager
def _owned(path: Path, seconds: float) -> Iterator[None]:
    """Hold `path` without `flock`. Raises TakenError, with the owner, after so many seconds."""
    marker = path.with_name(f"{path.name}.owner")
    kind, file = (FileLock, path) if sys.platform == "win32" else (MarkerSoftFileLock, marker)
    lock: BaseFileLock = kind(file, thread_local=False)
    try:
        lock.acquire(timeout=seconds)
    except Timeout as error:
        owner = lock.owner if isinstance(lock, MarkerSoftFileLock) else None
        if owner is None:
            raise TakenError(path) from error
        raise TakenError(path, f"process {owner.pid} of {owner.hostname} (if it is gone, remove {marker})") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def lease(folder: Path, name: str) -> Iterator[None]:
    """Hold a shared lock on `name` while the body runs. Raises OSError as `held` does."""
    path = folder / f"{name}.{secrets.token_hex(8)}.use"
    with held(path, wait=True):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a system may not remove what is open: whoever looks does
                path.unlink()


def is_leased(folder: Path, name: str) -> bool:
    """Whether a process holds a shared lock on `name`. Locks of dead processes are removed."""
    used = False
    for path in folder.iterdir():
        if path.name.startswith(f"{name}.") and path.name.endswith(".use"):
            if is_held(path):
                used = True
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
    return used
