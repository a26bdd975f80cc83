"""Run a planned sweep on Ray: long-lived replicas in placement groups, fed from each model's queue of chunks.

Ray places, starts and restarts; this module only decides what is asked of it, in one loop over Ray's events: a placement
group is ready, a replica has loaded, a chunk is scored, something died, machines came or went. Which replica starts next is
`policy.Policy`'s word. Answers are stored by this process alone.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evaluator.run.askable import name_sample
from evaluator.run.driver import failure_kind, record_failures
from evaluator.run.failures import Failures
from evaluator.run.prepare import PreparedModel
from evaluator.run.progress import ProgressView
from evaluator.run.score import Scored, requests_of_row
from evaluator.run.work import Work
from evaluator.store.run import Kind, Run
from evaluator.sweep.cluster import Cluster, ClusterLostError
from evaluator.sweep.fit import Way
from evaluator.sweep.groups import actor_options, ask
from evaluator.sweep.hardware import Fleet
from evaluator.sweep.job import Job, width
from evaluator.sweep.policy import Lines, Policy, Progress, Start
from evaluator.sweep.replica import Load, Loaded, Replica, ahead
from evaluator.sweep.schedule import Schedule
from evaluator_serving.engine import DeviceKind
from evaluator_serving.errors import EngineError, in_words
from evaluator_serving.registry import planned_device
from evaluator_serving.rows import Chunk, Row, Workload
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.weights.cache import readable
from evaluator_serving.weights.hub import HubModel

IN_FLIGHT = 2
"""Chunks a replica holds: one being scored, one waiting so that it never idles."""
START_ATTEMPTS = 5
"""Times in a row that a model's replicas may die while they load before it is given up."""
HANG_ATTEMPTS = 2
"""The same for replicas that have not loaded in time: each of these costs the whole deadline."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What the plan chose, and how replicas are started.

    Attributes:
        fleet: the machines that were planned for.
        jobs, lines: the plan's, see `schedule`.
        replan: (machines, names of the models with work left) → jobs and schedule, asked when machines came or went.
        start_deadline: seconds a replica may take to load, and a model may wait for a machine that it fits.
        verify: verify engines at load.
        access: how replicas reach the hub where their machines don't say it themselves.
    """

    fleet: Fleet
    jobs: Sequence[Job]
    lines: Lines
    replan: Callable[[Fleet, Sequence[str]], tuple[list[Job], Schedule]]
    start_deadline: float = 1800.0
    verify: bool = True
    access: HubAccess = field(default_factory=HubAccess)

    @property
    def cuda(self) -> bool:
        """Whether a device is a GPU (else a CPU worker)."""
        return self.fleet.kind == "cuda"


@dataclass(slots=True)
class _Model:
    prepared: PreparedModel
    work: Work | None = None
    rows: tuple[Row, ...] = ()
    workload: Workload | None = None
    device: DeviceKind = "cpu"
    """What its chunks are cut for: as planned, until its first replica says where it really computes."""
    begun: bool = False
    chunks: int = 0
    numbers: int = 0
    start_failures: int = 0
    """Since a replica last loaded."""
    error: Exception | None = None
    failed: int = 0
    lonely: float | None = None
    """Since when nothing that could score it has been there."""

    @property
    def name(self) -> str:
        return self.prepared.name

    @property
    def has_work(self) -> bool:
        return self.error is None and self.work is not None and bool(self.work.waiting)


@dataclass(slots=True)
class _Member:
    """One replica from its placement group on; `wait` is the one Ray reference whose result comes next."""

    model: _Model
    way: Way
    number: int
    group: PlacementGroup
    wait: Any
    actor: Any = None
    begun: float = field(default_factory=time.monotonic)
    deadline: float = float("inf")
    fetched: bool = False
    loaded: Loaded | None = None
    scored: int = 0
    flight: deque[tuple[Any, Chunk]] = field(default_factory=deque)

    @property
    def pending(self) -> bool:
        """Whether it still waits for its devices."""
        return self.actor is None

    def rate(self, chunks: int) -> float:
        """Parts of its model's work a second: as measured since it loaded, before that as planned."""
        if self.loaded is None or self.scored < 2:
            return 1 / max(self.way.score, 1e-9)
        return self.scored / chunks / max(time.monotonic() - self.loaded.moment, 1e-9)


class Pool:
    """The loop. One instance runs one sweep."""

    def __init__(self, run: Run, view: ProgressView, cluster: Cluster, options: PoolOptions) -> None:
        self._run = run
        self._view = view
        self._cluster = cluster
        self._options = options
        self._fleet = options.fleet
        self._policy = Policy.of(options.jobs, options.lines)
        self._models: dict[str, _Model] = {}
        self._members: list[_Member] = []
        self._ahead: dict[str, Any] = {}

    def execute(self, models: Sequence[PreparedModel]) -> dict[str, Exception]:
        """Score all models. Returns the errors of the models that could not be finished."""
        self._models = {model.name: _Model(model, failed=len(model.given_up)) for model in models}
        for state in self._models.values():
            with self._guarded(state):
                self._queue(state)
        try:
            while self._members or any(model.has_work for model in self._models.values()):
                self._ask()
                self._step()
        except ClusterLostError:
            self._members.clear()  # they are gone, and Ray would wait a minute to end them
            raise
        finally:
            for member in list(self._members):
                self._drop(member)
        return {name: model.error for name, model in self._models.items() if model.error is not None}

    def _queue(self, state: _Model) -> None:
        """Cut a model's pending requests into chunks."""
        prepared = state.prepared
        if not prepared.encoded:
            self._run.clear_model_failure(prepared.name)
            self._view.state(prepared.name, "done", "all answers are there already")
            return
        state.rows, state.workload = prepared.engine_rows()
        self._cut(state, planned_device(prepared.info.engine, prepared.spec.options, cuda=self._options.cuda))

    @staticmethod
    def _cut(model: _Model, device: DeviceKind) -> None:
        """Cut a model's pending requests into chunks for a kind of device."""
        model.device = device
        model.work = Work.of(model.prepared.pending_chunks(device))
        model.chunks = len(model.work.waiting)

    @contextlib.contextmanager
    def _guarded(self, model: _Model) -> Iterator[None]:
        """Whatever one model throws in the body ends that model alone."""
        caught = Failures()
        with caught.of(model.name):
            yield
        for error in caught.values():
            self._give_up(model, error)

    # --- starting ------------------------------------------------------------------------------------------------

    def _next_start(self, family: str, but: _Member | None = None) -> Start | None:
        """The policy's word on what starts next on a family; `but` is a replica that is about to end."""
        now = time.monotonic()
        nodes = self._fleet.families().get(family, [])  # none: its machines have just left
        taken = sum(width(m.way) for m in self._members if m is not but and m.way.family == family)
        free = sum(node.devices for node in nodes) - taken
        return self._policy.next(family, self._progress(now), now, lambda way: width(way) <= free + 1e-9)

    def _progress(self, now: float) -> dict[str, Progress]:
        """Every model with work left, as the policy sees it."""
        found = {}
        for name, model in self._models.items():
            if model.work is None or not model.has_work or name not in self._policy.jobs:
                continue
            members = [m for m in self._members if m.model is model]
            loaded = [m for m in members if m.loaded is not None]
            rate = sum(m.rate(model.chunks) for m in loaded)
            planned = sum(1 / max(m.way.score, 1e-9) for m in loaded)
            found[name] = Progress(
                left=len(model.work.waiting) / max(1, model.chunks),
                at=now,
                rate=rate,
                loading=[(m.begun + m.way.load, 1 / max(m.way.score, 1e-9)) for m in members if m.loaded is None],
                members=len(members),
                pace=rate / planned if planned else 1.0,
            )
        return found

    def _ask(self) -> None:
        """Keep one placement group a family pending, in the planned order, so that wide groups aren't starved."""
        for member in [m for m in self._members if m.pending and not m.model.has_work]:
            self._drop(member)  # others have taken all that it was to do
            self._finish(member.model)
        for family, nodes in self._fleet.families().items():
            if any(m.pending and m.way.family == family for m in self._members):
                continue
            chosen = self._next_start(family)
            if chosen is None:
                continue
            self._policy.started(family, chosen)
            name, way = chosen
            group = ask(way.placement, [n.id for n in nodes if n.id], cuda=self._options.cuda)
            self._members.append(self._member(self._models[name], way, group, group.ready()))

    def _member(self, model: _Model, way: Way, group: PlacementGroup, wait: Any) -> _Member:
        model.numbers += 1
        return _Member(model, way, model.numbers - 1, group, wait)

    def _start(self, member: _Member) -> None:
        """The devices are there: start a process on them, and let it load."""
        placement = member.way.placement
        options = actor_options(placement, member.group, cuda=self._options.cuda)
        member.actor = ray.remote(Replica).options(**options).remote(self._options.access)
        self._fetch(member)

    def _fetch(self, member: _Member) -> None:
        """Have the weights brought to the replica's machine. That takes as long as it takes: only loading has a deadline."""
        member.wait = member.actor.fetch.remote(self._what(member))
        member.begun = time.monotonic()
        origin = member.model.prepared.source.origin
        if isinstance(origin, HubModel):
            size = readable(origin.size)
            self._view.state(member.model.name, "loading", f"weights ({size}) for replica {member.number}, from cache or hub")

    def _load(self, member: _Member) -> None:
        member.fetched = True
        member.wait = member.actor.load.remote(self._what(member))
        member.deadline = time.monotonic() + self._options.start_deadline
        engine = member.model.prepared.info.engine
        self._view.state(member.model.name, "loading", f"loading replica {member.number} into {engine}")

    def _what(self, member: _Member) -> Load:
        prepared, placement = member.model.prepared, member.way.placement
        return Load(
            engine=prepared.info.engine,
            source=prepared.source,
            options=placement.options(prepared.spec.options),
            rows=member.model.rows,
            workload=member.model.workload,
            verify=self._options.verify,
        )

    def _next(self, member: _Member) -> bool:
        """Give a process whose model has nothing left to do the next model that wants the same devices. False if none does."""
        family = member.way.family
        waiting = next((m for m in self._members if m.pending and m.way.family == family), None)
        if waiting is not None:
            name, way = waiting.model.name, waiting.way
        else:
            chosen = self._next_start(family, member)
            if chosen is None:
                return False
            name, way = chosen
        if way.placement != member.way.placement:
            return False
        if waiting is not None:
            self._drop(waiting)
        else:
            self._policy.started(family, (name, way))
        follower = self._member(self._models[name], way, member.group, None)
        follower.actor = member.actor
        self._members[self._members.index(member)] = follower
        self._fetch(follower)
        return True

    def _read_ahead(self, member: _Member) -> None:
        """Have a replica's machine fetch and read the files of a model that starts soon: of each model one machine does.

        Another machine may be free first. But all of them fetching every model would be as many times the traffic.
        """
        family, pending = member.way.family, [m for m in self._members if m.pending]
        line = [m.model.name for m in pending if m.way.family == family]
        line += [name for name, _ in self._policy.lines.get(family) or ()]
        placed = {m.model.name for m in self._members if not m.pending}
        following = next((name for name in line if name not in placed and name not in self._ahead), None)
        if following is None or member.loaded is None:
            return
        origins = [m.prepared.source.origin for m in self._models.values() if m.has_work]
        keep = frozenset(origin.key for origin in origins if isinstance(origin, HubModel))
        there = NodeAffinitySchedulingStrategy(member.loaded.node, soft=False)
        task = ray.remote(ahead).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        self._ahead[following] = task.remote(self._models[following].prepared.source.origin, self._options.access, keep)

    # --- the loop ------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait for the next event and handle it."""
        waits = {m.flight[0][0] if m.flight else m.wait: m for m in self._members}
        ready: list[Any] = []
        if waits:
            ready, _ = ray.wait(list(waits), num_returns=1, timeout=1.0)
        else:
            time.sleep(1.0)  # until a machine comes that fits what is left
        self._cluster.check(idle=not ready)
        for ref in ready:
            with self._guarded(waits[ref].model):
                self._handle(waits[ref], ref)
        now = time.monotonic()
        for member in list(self._members):
            if now > member.deadline:
                reason = f"did not load within {self._options.start_deadline:.0f} s"
                self._start_failed(member, reason, allowed=HANG_ATTEMPTS)
        if fleet := self._cluster.changed(self._fleet):
            self._move(fleet)
        self._leave_lonely(now)

    def _move(self, fleet: Fleet) -> None:
        """Machines came or went: what waits for devices asks again, by a new plan for what is left."""
        for member in [m for m in self._members if m.pending]:
            self._drop(member)
        self._fleet = fleet
        jobs, schedule = self._options.replan(fleet, [name for name, model in self._models.items() if model.has_work])
        lines: dict[str, list[tuple[str, Way]]] = {family: [] for family in schedule.lines}
        there = {name: sum(m.model.name == name for m in self._members) for name in self._models}
        for family, line in schedule.lines.items():
            for name, way in line:
                if there[name] > 0:
                    there[name] -= 1  # one of its replicas is at work already
                else:
                    lines[family].append((name, way))
        self._policy = Policy.of(jobs, lines)

    def _leave_lonely(self, now: float) -> None:
        """Give up a model that no machine has fitted for as long as a replica may take to load."""
        for name, model in self._models.items():
            if not model.has_work or name in self._policy.jobs:
                model.lonely = None
            elif model.lonely is None:
                model.lonely = now
                self._view.state(name, "waiting", "no machine that it fits is left: waiting for one")
            elif now - model.lonely > self._options.start_deadline:
                self._give_up(model, EngineError(f"{name}: no machine that it fits has come back"))

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
        if member.pending:
            self._start(member)
        elif member.flight:
            _, chunk = member.flight.popleft()
            self._store(member, chunk, value)
            self._feed(member)
        elif member.fetched:
            self._loaded(member, value)
        elif value:
            self._load(member)
        else:  # what the process held before is still in memory: a new one, in the same place
            ray.kill(member.actor)
            self._start(member)

    def _loaded(self, member: _Member, loaded: Loaded) -> None:
        member.loaded = loaded.here()
        member.deadline = float("inf")
        member.model.start_failures = 0
        if loaded.device_kind != member.model.device and not member.model.begun:
            self._cut(member.model, loaded.device_kind)
        self._run.update_model(member.model.name, engine_details=loaded.details, verified=loaded.verified)
        self._view.state(member.model.name, "running", str(loaded.verified or ""))
        self._feed(member)
        self._read_ahead(member)

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
            if not self._next(member):
                self._drop(member)
            self._finish(member.model)

    def _store(self, member: _Member, chunk: Chunk, scored: Scored) -> None:
        name = member.model.name
        self._run.add_answers(self._run.answers_folder(name), member.model.prepared.kinds, scored.answers)
        self._run.add_timing(scored.timing(name, str(member.number)))
        self._view.advance(name, len(scored.answers))
        member.scored += 1
        if member.scored == 1 and member.loaded is not None:
            start = member.loaded.record(member.way, member.number, time.monotonic() - member.begun)
            self._run.add_start(name, start)

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
        self._view.state(member.model.name, "loading", note)
        self._record_failures(member.model, lost, "the worker died every time it scored this request", "poisonous")
        self._drop(member)
        self._restart(member)

    def _row_failed(self, member: _Member, error: EngineError) -> None:
        work = member.model.work
        assert work is not None
        assert error.row is not None
        _, chunk = member.flight.popleft()
        bad = work.failed(chunk, requests_of_row(chunk, error.row))
        self._record_failures(member.model, bad, str(error), failure_kind(error))
        if work.hopeless(member.model.failed, len(member.model.prepared.encoded)):
            self._give_up(member.model, EngineError(f"more than a tenth of its requests failed, the last one: {error}"))
        else:
            self._feed(member)

    def _record_failures(self, model: _Model, requests: Sequence[str], reason: str, kind: Kind) -> None:
        if requests:
            name = model.name
            model.failed += len(requests)
            tables = model.prepared.tables
            rows = [(name, request, f"{name_sample(tables, request)}: {reason}") for request in requests]
            self._run.add_failures(rows, kind)
            self._view.advance(name, 0, len(requests))

    def _start_failed(self, member: _Member, reason: str, *, allowed: int = START_ATTEMPTS) -> None:
        model = member.model
        model.start_failures += 1
        self._drop(member)
        if model.start_failures >= allowed:
            tried = f"{model.start_failures} starts in a row failed"
            self._give_up(model, EngineError(f"{model.name}: a replica {reason}; {tried}"))
        else:
            self._restart(member)

    def _restart(self, member: _Member) -> None:
        """Ask for a replica of a model again, first in line, if there is still something for it to do."""
        if not member.model.has_work:
            self._finish(member.model)
            return
        family = member.way.family
        self._policy.lines.setdefault(family, deque()).appendleft((member.model.name, member.way))
        for other in [m for m in self._members if m.pending and m.way.family == family]:
            self._drop(other)
            self._policy.lines[family].insert(1, (other.model.name, other.way))

    def _give_up(self, model: _Model, error: Exception) -> None:
        if model.error is None:
            model.error = error
            record_failures(self._run, {model.name: error})
            self._view.state(model.name, "failed", in_words(error))
        for member in [m for m in self._members if m.model is model]:
            self._drop(member)

    def _finish(self, model: _Model) -> None:
        if model.error is None and not model.has_work and not any(m.model is model for m in self._members):
            self._run.clear_model_failure(model.name)
            self._view.state(model.name, "done")

    def _drop(self, member: _Member) -> None:
        """End a replica and free its devices."""
        if member in self._members:
            self._members.remove(member)
            if member.actor is not None:
                ray.kill(member.actor)
            remove_placement_group(member.group)
