"""Run a planned sweep on Ray: long-lived replicas in placement groups, fed from each model's queue of chunks.

Ray places, starts and restarts; this module only decides what is asked of it, in one loop over Ray's events: a placement
group is ready, a replica has loaded, a chunk is scored, something died. Answers are stored by this process alone.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

# Ray prints paragraphs about what has died to standard output; the pool says the same in a line. Read at Ray's import.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|Raylet is terminated")

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from evaluator.run.failures import Failures
from evaluator.run.prepare import PreparedModel, name_sample
from evaluator.run.progress import ProgressView
from evaluator.run.score import Scored, requests_of_row
from evaluator.run.work import Work
from evaluator.store.run import Run
from evaluator.sweep.hardware import Hardware, gpus
from evaluator.sweep.replica import Replica, read_ahead
from evaluator_serving.engine import DeviceKind, engine_class, planned_device
from evaluator_serving.errors import EngineError, InputError, in_words
from evaluator_serving.models import check_unchanged
from evaluator_serving.rows import Chunk, Row, Workload

IN_FLIGHT = 2
"""Chunks a replica holds: one being scored, one waiting so that it never idles."""
START_ATTEMPTS = 5
"""Times in a row that a model's replicas may die while they load before it is given up."""
HANG_ATTEMPTS = 2
"""The same for replicas that have not loaded in time: each of these costs the whole deadline."""
HEALTH_SECONDS = 30
"""For a cluster's head node to say that it is one; most of it is the start of Ray's own command."""
KEPT = "what was scored is kept, run the same command again"


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How replicas are placed.

    Attributes:
        devices, replicas: model name → devices a replica, number of replicas.
        cuda: whether a device is a GPU (else a CPU core).
        start_deadline: seconds a replica may take to load.
        verify: verify engines at load.
    """

    devices: Mapping[str, int]
    replicas: Mapping[str, int]
    cuda: bool
    start_deadline: float = 1800.0
    verify: bool = True


class ClusterLostError(EngineError):
    """What is left of the Ray cluster can't be asked for anything any more."""


@dataclass(slots=True)
class _Model:
    prepared: PreparedModel
    work: Work | None = None
    rows: tuple[Row, ...] = ()
    workload: Workload | None = None
    device: DeviceKind = "cpu"
    """What its chunks are cut for: as planned, until its first replica says where it really computes."""
    begun: bool = False
    to_start: int = 0
    members: int = 0
    start_failures: int = 0
    """Since a replica last loaded."""
    error: Exception | None = None
    failed: int = 0

    @property
    def finished(self) -> bool:
        return self.error is not None or (self.work is not None and not self.work.waiting and self.members == 0)


@dataclass(slots=True)
class _Member:
    """One replica from its placement group on; `wait` is the one Ray reference whose result comes next."""

    model: _Model
    number: int
    group: PlacementGroup
    wait: Any
    actor: Any = None
    deadline: float = float("inf")
    flight: deque[tuple[Any, Chunk]] = field(default_factory=deque)


class Pool:
    """The loop. One instance runs one sweep."""

    def __init__(self, run: Run, view: ProgressView, options: PoolOptions) -> None:
        self._run = run
        self._view = view
        self._options = options
        self._members: list[_Member] = []
        self._starts: deque[_Model] = deque()
        self._ahead: list[Any] = []
        # Of a cluster that this process has started. Ray ends the driver without a word some time after one of them died.
        self._vital = [p for p in psutil.Process().children() if p.name() in ("raylet", "gcs_server")]

    def execute(self, models: Sequence[PreparedModel]) -> dict[str, Exception]:
        """Score all models, the first ones first. Returns the errors of the models that could not be finished."""
        states = [_Model(model) for model in models]
        for state in states:
            with self._guarded(state):
                self._queue(state)
        try:
            while self._starts or self._members:
                self._ask_for_groups()
                self._step()
        except ClusterLostError:
            self._members.clear()  # they are gone, and Ray would wait a minute to end them
            raise
        finally:
            for member in list(self._members):
                self._drop(member)
        return {s.prepared.name: s.error for s in states if s.error is not None}

    def _queue(self, state: _Model) -> None:
        """Cut a model's pending requests into chunks and put it last in the line of those to start."""
        prepared = state.prepared
        if not prepared.encoded:
            self._run.clear_model_failure(prepared.name)
            self._view.state(prepared.name, "done", "all answers are there already")
            return
        state.rows, state.workload = prepared.engine_rows()
        self._cut(state, planned_device(prepared.info.engine, prepared.spec.options, cuda=self._options.cuda))

    def _cut(self, model: _Model, device: DeviceKind) -> None:
        """Cut a model's chunks for a kind of device and see that as many replicas start as there is work for."""
        share = engine_class(model.prepared.info.engine).share_prefixes
        model.device = device
        model.work = Work.of(model.prepared.pending_chunks(device, share_prefixes=share), share_prefixes=share)
        wanted = min(self._options.replicas[model.prepared.name], len(model.work.waiting))
        model.to_start = max(0, wanted - model.members)
        if model not in self._starts:
            self._starts.append(model)

    @contextlib.contextmanager
    def _guarded(self, model: _Model) -> Iterator[None]:
        """Whatever one model throws in the body ends that model alone."""
        caught = Failures()
        with caught.of(model.prepared.name):
            yield
        for error in caught.values():
            self._give_up(model, error)

    # --- starting ------------------------------------------------------------------------------------------------

    def _ask_for_groups(self) -> None:
        """Keep exactly one placement group pending, in the planned order, so that wide groups aren't starved."""
        if any(member.actor is None for member in self._members):
            return
        while self._starts:
            model = self._starts[0]
            if model.error is not None or model.to_start == 0 or (model.members and not self._has_work(model)):
                self._starts.popleft()
                continue
            model.to_start -= 1
            number = self._options.replicas[model.prepared.name] - model.to_start - 1
            self._members.append(_Member(model, number, *self._group(model)))
            model.members += 1
            self._read_ahead()
            return

    @staticmethod
    def _has_work(model: _Model) -> bool:
        return model.work is not None and bool(model.work.waiting)

    def _group(self, model: _Model) -> tuple[PlacementGroup, Any]:
        devices = self._options.devices[model.prepared.name]
        # vLLM starts its own workers inside the group of a tensor-parallel replica; STRICT_PACK keeps it on one node.
        bundle = {"GPU": float(devices), "CPU": 1.0} if self._options.cuda else {"CPU": float(devices)}
        group = placement_group([bundle], strategy="STRICT_PACK")
        return group, group.ready()

    def _start(self, member: _Member) -> None:
        check_unchanged(member.model.prepared.source)
        name = member.model.prepared.name
        devices = self._options.devices[name]
        threads = str(max(1, devices))
        environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if not self._options.cuda:
            environment["OMP_NUM_THREADS"] = threads
        actor = ray.remote(Replica).options(
            num_cpus=1 if self._options.cuda else devices,
            num_gpus=devices if self._options.cuda else 0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(member.group, placement_group_capture_child_tasks=True),
            runtime_env={"env_vars": environment},
            max_restarts=0,
        )
        prepared = member.model.prepared
        member.actor = actor.remote()
        model = member.model
        member.wait = member.actor.load.remote(
            prepared.info.engine, prepared.source, prepared.spec.options, model.rows, model.workload, self._options.verify
        )
        member.deadline = time.monotonic() + self._options.start_deadline
        self._view.state(name, "loading", f"loading replica {member.number} into {prepared.info.engine}")

    def _read_ahead(self) -> None:
        """Have every node read the files of the model that starts next while the present ones load and score."""
        following = next((m for m in self._starts if m.members == 0), None)
        if following is None:
            return
        task = ray.remote(read_ahead)
        path = str(following.prepared.source.path)
        self._ahead = [
            task.options(
                num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            ).remote(path)
            for node in ray.nodes()
            if node["Alive"]
        ]

    # --- the loop ------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait for the next event and handle it."""
        waits = {m.flight[0][0] if m.flight else m.wait: m for m in self._members}
        if not waits:
            return
        ready, _ = ray.wait(list(waits), num_returns=1, timeout=1.0)
        if not all(map(_alive, self._vital)):
            raise ClusterLostError(f"Ray itself died on this machine: {KEPT}")
        if not ready and not any(node["Alive"] for node in ray.nodes()):
            raise ClusterLostError(f"the Ray cluster has lost all its nodes: {KEPT}")
        for ref in ready:
            with self._guarded(waits[ref].model):
                self._handle(waits[ref], ref)
        now = time.monotonic()
        for member in list(self._members):
            if now > member.deadline:
                reason = f"did not load within {self._options.start_deadline:.0f} s"
                self._start_failed(member, reason, allowed=HANG_ATTEMPTS)

    def _handle(self, member: _Member, ref: Any) -> None:
        try:
            value = ray.get(ref)
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if member.flight and isinstance(cause, EngineError) and cause.row is not None:
                self._row_failed(member, cause)
            else:
                self._give_up(member.model, cause)
            return
        except RayError as error:  # the actor died, or the task that waits for its placement group did
            if member.flight:
                self._died(member, type(error).__name__)
            else:
                self._start_failed(member, f"died while it loaded ({type(error).__name__})")
            return
        if member.actor is None and not self._has_work(member.model):
            self._drop(member)
            self._finish(member.model)
        elif member.actor is None:
            self._start(member)
        elif member.flight:
            _, chunk = member.flight.popleft()
            self._store(member, chunk, value)
            self._feed(member)
        else:
            self._loaded(member, value)

    def _loaded(self, member: _Member, facts: dict[str, Any]) -> None:
        member.deadline = float("inf")
        member.model.start_failures = 0
        if facts["device_kind"] != member.model.device and not member.model.begun:
            self._cut(member.model, facts["device_kind"])
        name = member.model.prepared.name
        known = {key: facts[key] for key in ("engine_details", "verified") if key in facts}
        self._run.update_model(name, **known)
        self._view.state(name, "running", facts.get("verified") or "")
        self._feed(member)

    def _feed(self, member: _Member) -> None:
        work = member.model.work
        assert work is not None
        while member.model.error is None and len(member.flight) < IN_FLIGHT:
            chunk = work.take()
            if chunk is None:
                break
            member.model.begun = True
            member.flight.append((member.actor.score.remote(chunk), chunk))
        if not member.flight:
            self._drop(member)
            self._finish(member.model)

    def _store(self, member: _Member, chunk: Chunk, scored: Scored) -> None:
        name = member.model.prepared.name
        self._run.add_answers(self._run.answers_folder(name), member.model.prepared.kinds, scored.answers)
        self._run.add_timing(scored.timing(name, str(member.number)))
        self._view.advance(name, len(scored.answers))

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _died(self, member: _Member, reason: str) -> None:
        """A replica died while scoring: its first chunk is suspect, the others only wait again."""
        work = member.model.work
        assert work is not None
        (_, suspect), *others = member.flight
        member.flight.clear()
        for _, chunk in reversed(others):
            work.give_back(chunk)
        lost = work.killed(suspect)
        note = f"replica {member.number} died while it scored ({reason}), its chunks wait again"
        self._view.state(member.model.prepared.name, "loading", note)
        self._record_failures(member.model, lost, "the worker died every time it scored this request")
        self._drop(member)
        self._restart(member.model)

    def _row_failed(self, member: _Member, error: EngineError) -> None:
        work = member.model.work
        assert work is not None
        assert error.row is not None
        _, chunk = member.flight.popleft()
        bad = work.failed(chunk, requests_of_row(chunk, error.row))
        self._record_failures(member.model, bad, str(error))
        if work.hopeless(member.model.failed, len(member.model.prepared.encoded)):
            self._give_up(member.model, EngineError(f"more than a tenth of its requests failed, the last one: {error}"))
        else:
            self._feed(member)

    def _record_failures(self, model: _Model, requests: Sequence[str], reason: str) -> None:
        if requests:
            name = model.prepared.name
            model.failed += len(requests)
            tables = model.prepared.tables
            self._run.add_failures([(name, request, f"{name_sample(tables, request)}: {reason}") for request in requests])
            self._view.advance(name, 0, len(requests))

    def _start_failed(self, member: _Member, reason: str, *, allowed: int = START_ATTEMPTS) -> None:
        model = member.model
        model.start_failures += 1
        self._drop(member)
        if model.start_failures >= allowed:
            tried = f"{model.start_failures} starts in a row failed"
            self._give_up(model, EngineError(f"{model.prepared.name}: a replica {reason}; {tried}"))
        else:
            self._restart(model)

    def _restart(self, model: _Model) -> None:
        """Ask for one more replica of a model, first in line, if there is still something for it to do."""
        if model.error is None and self._has_work(model):
            model.to_start += 1
            if model in self._starts:
                self._starts.remove(model)
            self._starts.appendleft(model)
        else:
            self._finish(model)

    def _give_up(self, model: _Model, error: Exception) -> None:
        if model.error is None:
            model.error = error
            self._run.add_failures([(model.prepared.name, "", in_words(error))])
            self._view.state(model.prepared.name, "failed", in_words(error))
        for member in [m for m in self._members if m.model is model]:
            self._drop(member)

    def _finish(self, model: _Model) -> None:
        if model.finished and model.error is None:
            self._run.clear_model_failure(model.prepared.name)
            self._view.state(model.prepared.name, "done")

    def _drop(self, member: _Member) -> None:
        """End a replica and free its devices."""
        if member in self._members:
            self._members.remove(member)
            member.model.members -= 1
            if member.actor is not None:
                ray.kill(member.actor)
            remove_placement_group(member.group)


def _alive(process: psutil.Process) -> bool:
    """Whether a child process runs (a dead one stays as a zombie until its parent asks)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def connect(address: str, workers: int | None) -> None:
    """Join the Ray cluster at `address`, or start one on this machine for `local`. Raises InputError if none answers."""
    if address not in ("local", "auto"):
        _reach(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address == "local":
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)  # Ray's own prints a native stack and aborts
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"no Ray cluster answers at {address!r} ({first}): start one or use --ray local") from error


def _reach(address: str) -> None:
    """Ray itself would go on trying for minutes: see first whether anything listens at host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if not host or not port.isdigit():
            raise InputError(f"--ray {address!r} is no address: write local, HOST:PORT or ray://HOST:PORT")
        socket.create_connection((host, int(port)), timeout=5).close()
        if not address.startswith("ray://"):
            # Ray would ask something else that listens there for many minutes.
            asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
            health = subprocess.run(asked, capture_output=True, text=True, timeout=HEALTH_SECONDS, check=False)
            if "AuthenticationError" in health.stderr:
                raise InputError(f"the Ray cluster at {address} wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN")
            if health.returncode:
                raise InputError(f"what listens at {address} is no Ray cluster: give the address of a head node")
    except subprocess.TimeoutExpired as error:
        raise InputError(f"what listens at {address} doesn't answer as a Ray cluster does: give a head node's") from error
    except OSError as error:
        raise InputError(f"no Ray cluster answers at {address!r} ({error}): start one or use --ray local") from error


def disconnect() -> None:
    """Leave the cluster (and end it, if it was started here)."""
    ray.shutdown()


def cluster_hardware() -> Hardware:
    """The devices of the Ray cluster that this process has joined.

    Memory per GPU is asked of the first node with one; a cluster without GPUs counts its CPU cores as devices.
    """
    resources = ray.cluster_resources()
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if resources.get("GPU", 0) >= 1:
        name, free = ray.get(ray.remote(gpus).options(num_gpus=1, max_retries=0).remote())[0]
        node = int(max(r.get("GPU", 0) for r in alive))
        return Hardware("cuda", int(resources["GPU"]), free, node, name)
    cores = int(resources.get("CPU", 1))
    memory = int(min(r.get("memory", 0) / max(1, r.get("CPU", 1)) for r in alive if r.get("CPU")))
    return Hardware("cpu", cores, memory, int(max(r.get("CPU", 0) for r in alive)), f"Ray cluster, {cores} CPU workers")
