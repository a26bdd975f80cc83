"""Wait until a Ray cluster has all its machines, rather than for some seconds.

    python -m evaluator.deploy.wait HOST:PORT MACHINES SECONDS

Exit code 0 when so many are alive, 1 where they don't come within the time. The cluster's token is in RAY_AUTH_TOKEN.
"""

import sys
import time

import ray

EVERY = 1.0
"""Seconds between looks."""


def wait(address: str, machines: int, seconds: float) -> int:
    """Returns how many machines are alive: `machines`, or fewer when the time is over (0 where there is no cluster by then)."""
    end, alive = time.monotonic() + seconds, 0
    while alive < machines and time.monotonic() < end:
        try:
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            alive = sum(node["Alive"] for node in ray.nodes())
        except (ConnectionError, RuntimeError, TimeoutError):  # its head isn't up yet
            alive = 0
        if alive < machines:
            time.sleep(EVERY)
    ray.shutdown()
    return alive


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m evaluator.deploy.wait HOST:PORT MACHINES SECONDS")
    given, wanted, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    found = wait(given, wanted, limit)
    if found < wanted:
        sys.exit(f"{found} of {wanted} machines joined the Ray cluster at {given} within {limit:.0f} s")
