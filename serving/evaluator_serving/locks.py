"""Locks between processes of one machine, on every system: a file that is held for as long as its holder lives.

What is held is seen by whoever looks, and a killed process holds nothing any more. Where the system has `flock`, looking needs
no right to write. Where it has no such locks, or the file lies where there are none, one beside it says who its owner is (host,
process, when that started): what an owner left that is dead on this machine is taken over, for another one nobody waits long.
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
    """Another process holds the file: `holder` says which, as far as that is known."""

    def __init__(self, path: Path, holder: str = "another process") -> None:
        super().__init__(f"{path} is held by {holder}")
        self.holder = holder


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold `path`, which is made where it is missing, while the body runs. Raises TakenError where it is held, without `wait`.

    Raises OSError where the folder can't be written to.
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
    """Lock an open file until it is closed; False where there are no such locks. Raises BlockingIOError as `flock` does."""
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
    """Hold `path` without `flock`. Raises TakenError, naming the owner, where it isn't free within so many seconds."""
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
    """Use what `name` stands for while the body runs, together with others who do. Raises OSError as `held` does."""
    path = folder / f"{name}.{secrets.token_hex(8)}.use"
    with held(path, wait=True):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a system may not remove what is open: whoever looks does
                path.unlink()


def is_leased(folder: Path, name: str) -> bool:
    """Whether a process uses what `name` stands for. What dead processes left is removed."""
    used = False
    for path in folder.iterdir():
        if path.name.startswith(f"{name}.") and path.name.endswith(".use"):
            if is_held(path):
                used = True
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
    return used
