"""Locks between processes of one machine, on every system: a file that is held for as long as its holder lives.

What is held is seen by whoever looks, and a killed process holds nothing any more. Where the system has `flock`, looking needs
no right to write.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

fcntl: Any
try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None


class TakenError(OSError):
    """Another process holds the file."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold `path`, which is made where it is missing, while the body runs. Raises TakenError where it is held, without `wait`.

    Raises OSError where the folder can't be written to.
    """
    if fcntl is None:
        try:
            with FileLock(path, timeout=-1 if wait else 0):
                yield
        except Timeout as error:
            raise TakenError(f"{path} is held by another process") from error
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise TakenError(f"{path} is held by another process") from error
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether a process holds `path` now."""
    if fcntl is None:
        if not path.exists():
            return False
        try:
            with FileLock(path, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # a folder that can only be read: nobody can tell
            return False
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # nobody ever held it
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


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
