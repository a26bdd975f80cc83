"""The Ray cluster: joining or starting one, and which machines it has at the moment."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

# Ray prints paragraphs about what has died to standard output; the pool says the same in a line. Read at Ray's import.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|Raylet is terminated")

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evaluator import logs
from evaluator.sweep.hardware import Fleet, Gpu, Node, fleet_of, gpus, node_of_gpus
from evaluator_serving.errors import EngineError, InputError, NotNowError
from evaluator_serving.weights.folders import glance, lacking

HEALTH_SECONDS = 120
"""For a cluster's head node to say that it is one; most of it is the start of Ray's own command."""
LOOK_SECONDS = 180
"""For a node to say which GPUs it has; most of it is the start of a process there."""
STARTS = 3
"""Times that a cluster is started here: Ray gives its node half a minute, which a busy machine may not keep to."""
WATCH_EVERY = 5.0
"""Seconds between looks at which nodes there are."""
_vital: list[psutil.Process] = []
"""Of the cluster that this process has started, not of one before it, which may still be dying. Ray ends the driver without a
word some time after one of them died."""
KEPT = "finished work is kept: run the same command again"


class ClusterLostError(EngineError):
    """The Ray cluster is lost: no more requests to it can succeed."""


def connect(address: str, workers: int | None, report: Callable[[str], None] = logs.line) -> None:
    """Join the Ray cluster at `address`, or start one on this machine for `local`; `report` gets a line on what is awaited.

    Raises InputError if none can be joined, NotNowError if none answers at the moment.
    """
    if address not in ("local", "auto"):
        report(f"joining the Ray cluster at {address}")
        _reach(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address == "local":
            _start_here(report, num_cpus=workers, include_dashboard=False, **_short_folder(), **quiet)
        else:
            ray.init(address=address, **quiet)
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)  # Ray's own prints a native stack and aborts
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__  # of other versions the later lines say which
        kind = NotNowError if isinstance(error, OSError) else InputError  # another version stays another one
        raise kind(f"no Ray cluster answers at {address!r} ({reason}): start one or use --ray local") from error


SOCKET = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store.12345678"
"""The longest path of a socket that Ray makes in the folder for temporary files (of which the pid may have seven digits)."""

MOST = 103
"""Bytes of a socket's path that every system takes (Linux: 107, macOS: 103)."""


def _short_folder(places: Sequence[str] = ("/tmp", "/dev/shm", "/var/tmp")) -> dict[str, str]:
    """Where a Ray that is started here has its sockets, if the folder for temporary files has too long a path.

    Raises InputError where no place is short enough.
    """
    usual = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    if len(os.fsencode(os.path.join(os.path.abspath(usual), SOCKET))) <= MOST:
        return {}
    for place in places:
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return {"_temp_dir": os.path.join(place, f"ray-{os.getuid()}")}
    raise InputError(
        f"the temporary folder {usual} has too long a path for Ray's sockets: set RAY_TMPDIR to a folder with a short one"
    )


def _start_here(report: Callable[[str], None], **options: Any) -> None:
    """Start a cluster on this machine. Raises EngineError where its node doesn't come up in time again and again."""
    for left in reversed(range(STARTS)):
        again = f", attempt {STARTS - left} of {STARTS}" if left < STARTS - 1 else ""
        report(f"starting Ray on this machine (--ray local){again}")
        before = set(psutil.Process().children(recursive=True))
        try:
            ray.init(address="local", **options)
        except Exception as error:
            if "timed out during startup" not in str(error):  # Ray has no class for it
                raise
            for process in set(psutil.Process().children(recursive=True)) - before:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if not left:
                what = f"{STARTS} starts of a local Ray node timed out: this machine is too busy for --ray local"
                raise EngineError(what) from error
        else:
            here = set(psutil.Process().children()) - before
            _vital[:] = [process for process in here if _alive(process) and process.name() in ("raylet", "gcs_server")]
            return


def _reach(address: str) -> None:
    """Ray itself would go on trying for minutes: see first whether anything listens at host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if not host or not port.isdigit():
            raise InputError(f"--ray {address!r} is not an address: write local, HOST:PORT or ray://HOST:PORT")
        socket.create_connection((host, int(port)), timeout=5).close()
        if not address.startswith("ray://"):
            # Ray would ask something else that listens there for many minutes.
            command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
            health = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_SECONDS, check=False)
            if "AuthenticationError" in health.stderr:
                raise InputError(f"the Ray cluster at {address} requires a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN")
            if health.returncode:
                raise InputError(f"the server at {address} is not a Ray cluster: give the address of a head node")
    except subprocess.TimeoutExpired as error:
        raise NotNowError(
            f"the server at {address} does not respond like a Ray cluster: give the address of a head node"
        ) from error
    except OSError as error:
        raise NotNowError(f"no Ray cluster answers at {address!r} ({error}): start one or use --ray local") from error


def disconnect() -> None:
    """Leave the cluster (and end it, if it was started here)."""
    _vital.clear()
    ray.shutdown()


@dataclass(slots=True)
class Cluster:
    """Which machines there are. GPUs are asked about once a node; nodes that join or leave show at the next look."""

    worker_memory: int | None = None
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Models (by name) whose weights are in a local folder or file: every machine is asked whether it has the same."""
    _known: dict[str, Node] = field(default_factory=dict)
    _looked: float = 0.0

    def fleet(self) -> Fleet:
        """The machines of the cluster now. Raises NotNowError where none has a GPU or a CPU core."""
        alive = [node for node in ray.nodes() if node["Alive"]]
        new = [node for node in alive if node["NodeID"] not in self._known]
        asked = {node["NodeID"]: _ask_gpus(node["NodeID"]) for node in new if node["Resources"].get("GPU", 0) >= 1}
        lacks = self._lacks([node["NodeID"] for node in new])
        for node in new:
            found = self._node(node, asked.get(node["NodeID"]))
            self._known[node["NodeID"]] = replace(found, lacks=lacks.get(node["NodeID"], ()))
        self._looked = time.monotonic()
        return fleet_of([self._known[node["NodeID"]] for node in alive])

    def changed(self, fleet: Fleet) -> Fleet | None:
        """The fleet if it is another than `fleet`, looked at every few seconds; else None."""
        if time.monotonic() - self._looked < WATCH_EVERY or not all(node.id for node in fleet.nodes):
            return None  # one machine without a cluster stays what it is
        try:
            now = self.fleet()
        except NotNowError:  # no worker is there at the moment
            now = Fleet(())
        return now if {node.id for node in now.nodes} != {node.id for node in fleet.nodes} else None

    def check(self, *, idle: bool) -> None:
        """Raise ClusterLostError where the cluster itself is gone; whether it has nodes is asked only while nothing happens."""
        if not all(map(_alive, _vital)):
            raise ClusterLostError(f"Ray itself died on this machine: {KEPT}")
        if idle and not any(node["Alive"] for node in ray.nodes()):
            raise ClusterLostError(f"the Ray cluster has lost all its nodes: {KEPT}")

    def _lacks(self, nodes: list[str]) -> dict[str, tuple[str, ...]]:
        """Models whose folder isn't on a node; a node that doesn't say is taken to have all (loading will tell)."""
        if not self.folders or not nodes:
            return {}
        here = {name: (path, glance(path)) for name, path in self.folders.items()}
        task = ray.remote(lacking)
        there = {node: NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes}
        asked = {n: task.options(num_cpus=0, max_retries=0, scheduling_strategy=there[n]).remote(here) for n in nodes}
        found = {}
        for node, answer in asked.items():
            with contextlib.suppress(RayError):
                found[node] = ray.get(answer, timeout=LOOK_SECONDS)
        return found

    def _node(self, node: dict[str, Any], asked: Any) -> Node:
        resources, where = node["Resources"], {"id": node["NodeID"], "address": str(node.get("NodeManagerAddress", ""))}
        if asked is not None:
            found: list[Gpu] = []
            with contextlib.suppress(RayError):
                found = ray.get(asked, timeout=LOOK_SECONDS)
            if found:
                return node_of_gpus(found, **where)
            # The node says that it has GPUs, and has no tool that tells which: its cores are used.
        cores = int(resources.get("CPU", 0))
        memory = self.worker_memory or int(resources.get("memory", 0) / max(1, cores))
        return Node("cpu", "CPU worker", cores, memory, **where)


def _ask_gpus(node: str) -> Any:
    """A reference to the GPUs of a node: all of them, whatever is in use there now."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    seen = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}  # older Rays hide all GPUs from a task that takes none
    task = ray.remote(gpus).options(num_cpus=0, num_gpus=0, max_retries=0, scheduling_strategy=strategy, runtime_env=seen)
    return task.remote()


def _alive(process: psutil.Process) -> bool:
    """Whether a child process runs (a dead one stays as a zombie until its parent asks)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
