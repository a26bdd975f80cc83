"""Ports of this machine for servers that are told theirs, and addresses at which nobody answers."""

import contextlib
import random
import socket
from collections.abc import Iterator

OWN = (20_000, 32_000)
"""Below those that systems give to whoever asks for any (32,768 on): a port that was found free here is free seconds later."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on, and that no connection or server gets by chance until it is used."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(*OWN)  # other processes look for one at the same time
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            return port
    raise RuntimeError("no port is free")


@contextlib.contextmanager
def silent_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port at which every connection is refused while the body runs."""
    with socket.socket() as taken:
        taken.bind((host, 0))  # and nobody listens
        yield int(taken.getsockname()[1])
