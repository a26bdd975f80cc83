"""Random delays where threads, processes, sockets and files hand over to each other: what a test takes for granted fails.

Python imports this file at the start of every process that finds it in PYTHONPATH; it does nothing without DELAYS (a seed).
"""

import functools
import http.server
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread
from typing import Any

SEED = os.environ.get("DELAYS")
_dice = random.Random(f"{SEED} {os.getpid()}")
_sleep = time.sleep


def pause(often: float) -> None:
    """Mostly nothing or up to 10 ms; with the chance `often` up to 0.3 s, with a tenth of it up to 2 s."""
    chance = _dice.random()
    if chance < often / 10:
        _sleep(_dice.uniform(0.8, 2.0))
    elif chance < often:
        _sleep(_dice.uniform(0.05, 0.3))
    elif chance < often + 0.3:
        _sleep(_dice.uniform(0.0, 0.01))


def delayed(place: Any, name: str, *, before: float = 0.0, after: float = 0.0) -> None:
    """Pause before and behind a function, with these chances; not at all where one is 0."""
    function: Callable[..., Any] = getattr(place, name)

    @functools.wraps(function)
    def slowly(*arguments: Any, **named: Any) -> Any:
        if before:
            pause(before)
        done = function(*arguments, **named)
        if after:
            pause(after)
        return done

    setattr(place, name, slowly)


def delay_everything() -> None:
    """Each begins late, is noticed late, or goes on late."""
    delayed(threading.Thread, "run", before=0.4)
    delayed(threading.Event, "set", before=0.06, after=0.06)
    delayed(thread._WorkItem, "run", before=0.2)
    delayed(time, "sleep", after=0.06)
    for name in ("replace", "rename", "link", "kill"):
        delayed(os, name, before=0.06, after=0.06)
    delayed(subprocess.Popen, "__init__", after=0.2)
    delayed(socket.socket, "connect", before=0.1)
    for name in ("send", "sendall"):
        delayed(socket.socket, name, before=0.05)
    delayed(socket.socket, "accept", after=0.1)
    for name in ("send_response", "end_headers", "handle_one_request"):
        delayed(http.server.BaseHTTPRequestHandler, name, before=0.1, after=0.1)


if SEED is not None:
    delay_everything()
