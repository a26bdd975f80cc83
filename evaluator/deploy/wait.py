"""Wait until a Ray cluster has all its machines.

    python -m evaluator.deploy.wait HOST:PORT MACHINES SECONDS

Exit code 0 when MACHINES nodes are alive, 1 after SECONDS. The cluster's token is in RAY_AUTH_TOKEN.
"""

import sys
import time

import ray

POLL_INTERVAL = 1.0
"""Seconds between polls."""


def wait(address: str, machines: int, seconds: float) -> int:
    """Returns the number of machines alive: `machines`, or fewer after a timeout (0 if the cluster cannot be reached)."""
    deadline, alive = time.monotonic() + seconds, 0
    while alive < machines and time.monotonic() < deadline:
        try:
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            alive = sum(node["Alive"] for node in ray.nodes())
        except (ConnectionError, RuntimeError, TimeoutError):  # the head node is not up yet
            alive = 0
        if alive < machines:
            time.sleep(POLL_INTERVAL)
    ray.shutdown()
    return alive


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m evaluator.deploy.wait HOST:PORT MACHINES SECONDS")
    address, machines, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    alive = wait(address, machines, timeout)
    if alive < machines:
        sys.exit(f"{alive} of {machines} machines joined the Ray cluster at {address} within {timeout:.0f} s")
