"""The scoring loop: hands chunks to replicas (see `replica`), stores their answers and handles their failures.

The replica source decides which replica starts on which model. Only this process stores answers.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evaluator.scoring.commits import Arrival, Commits
from evaluator.scoring.failures import Failures, failure_kind, record_failures
from evaluator.scoring.metrics import Meter
from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.progress import ProgressView
from evaluator.scoring.record import record_replies
from evaluator.scoring.recovery import answers_to_repeat, recover
from evaluator.scoring.replica import ActiveReplica, Assignment, Call, LoopState, LostError, ModelState, ReplicaSource
from evaluator.scoring.score import Scored, requests_of_row, start_record
from evaluator.scoring.skip_rules import name_samples
from evaluator.scoring.worker import Load, Loaded
from evaluator.store.run import Kind, Run
from evaluator_serving.chunks import Chunk
from evaluator_serving.errors import EngineError, FailingError, InputError, in_words

START_ATTEMPTS = 5
"""Times in a row that a model's replicas may die while they load before it is given up."""
HANG_ATTEMPTS = 2
"""The same for replicas that have not loaded in time: each of these costs the whole deadline."""
CLOSE_SECONDS = 60.0
"""For an engine to close; then its process is ended."""


class Loop:
    """The loop. One instance scores one command's models."""

    def __init__(
        self, run: Run, view: ProgressView, replica_source: ReplicaSource, meter: Meter, *, verify: bool, strict: bool
    ) -> None:
        self._run = run
        self._view = view
        self._replica_source = replica_source
        self._meter = meter
        self._verify = verify
        self._strict = strict
        self._state = LoopState({})
        self._commits = Commits(run)

    def execute(self, models: Sequence[PreparedModel]) -> dict[str, Exception]:
        """Score all models. Returns the errors of those that could not be finished."""
        self._state = LoopState({model.name: ModelState(model, failed=len(model.given_up)) for model in models})
        done = [model.name for model in models if not model.encoded]
        self._run.clear_model_failure(*done)
        for name in done:
            self._view.state(name, "done", "all answers are already stored")
        self._run.merge_timings()
        state = self._state
        self._meter.begin(state)
        try:
            while state.active_replicas or any(model.has_work for model in state.models.values()):
                for assignment in self._replica_source.next_assignments(state):
                    self._begin(assignment)
                for active in self._replica_source.preempted():
                    self._release(active)
                self._meter.look(state)
                self._step()
        finally:
            for active in list(state.active_replicas):
                self._drop(active)
            self._commit()
            for model in models:
                recover(self._run, model)
            self._meter.look(state, now=True)
            self._replica_source.close()
        return {name: model.error for name, model in state.models.items() if model.error is not None}

    def _step(self) -> None:
        """Wait for the next call that comes back, and see to it; then to what has come too late, or can't come."""
        waiting = {active.call: active for active in self._state.active_replicas}
        call = self._replica_source.wait(list(waiting))
        if call is not None:
            with self._guarded(waiting[call].model):
                self._handle(waiting[call], call)
        if self._commits.due:
            self._commit()
        now = time.monotonic()
        for active in [m for m in self._state.active_replicas if now > m.deadline]:
            self._too_late(active)
        for name, error in self._replica_source.infeasible(self._state).items():
            self._give_up(self._state.models[name], error)

    @contextlib.contextmanager
    def _guarded(self, model: ModelState) -> Iterator[None]:
        """Whatever one model throws in the body ends that model alone."""
        caught = Failures()
        with caught.of(model.name):
            yield
        for error in caught.values():
            self._give_up(model, error)

    def _handle(self, active: ActiveReplica, call: Call[Any]) -> None:
        """See to what one call has come to."""
        try:
            value = call.result()
        except LostError as lost:
            self._lost(active, str(lost))
            return
        except EngineError as error:
            if not active.in_flight or error.row is None:
                raise
            self._row_failed(active, error, error.row)
            return
        if active.in_flight:
            _, chunk = active.in_flight.popleft()
            self._store(active, chunk, value)
            self._feed(active)
            return
        assert active.pending_call is not None
        done, _ = active.pending_call
        if done == "fetch":
            self._load(active)
        elif done == "load":
            self._loaded(active, value)
        else:
            self._closed(active, free=value)

    # --- a replica's life ----------------------------------------------------------------------------------------

    def _begin(self, assignment: Assignment) -> None:
        """Have the weights brought to a replica's machine. That takes as long as it takes: only loading has a deadline."""
        model = self._state.models[assignment.model]
        active = ActiveReplica(model, assignment.replica, model.replicas_started, time.monotonic())
        model.replicas_started += 1
        self._state.active_replicas.append(active)
        with self._guarded(model):
            if model.workload is None:
                self._state.size(model)
            load = self._load_of(active)
            if note := self._replica_source.fetch_note(load):
                self._view.state(model.name, "loading", note, replica=active.number)
            active.pending_call = "fetch", active.replica.fetch(load)

    def _load_of(self, active: ActiveReplica) -> Load:
        prepared = active.model.prepared
        return Load(
            engine=prepared.info.engine,
            source=prepared.source,
            options=active.replica.options(prepared.spec.options),
            rows=active.model.rows,
            workload=active.model.workload,
            verify=self._verify,
            journal=self._run.journal(active.model.name),
            earlier=answers_to_repeat(self._run, prepared),
            table=prepared.encoded if active.model.work is None else None,
            chunk_tokens=prepared.chunk_tokens,
        )

    def _load(self, active: ActiveReplica, held_for: str = "") -> None:
        """Have a model loaded; `held_for` names the one for which its weights are loaded already."""
        info = active.model.prepared.info
        which = f", replica {active.number}" if active.number else ""
        how = f"with the weights of {held_for}" if held_for else f"loading into {info.engine} ({info.dtype})"
        note = f"{how}{which}"
        self._view.state(active.model.name, "loading", note, replica=active.number)
        active.pending_call = "load", active.replica.load(self._load_of(active))
        active.deadline = time.monotonic() + self._replica_source.start_deadline

    def _loaded(self, active: ActiveReplica, loaded: Loaded) -> None:
        model = active.model
        active.pending_call = None
        active.loaded, active.loaded_at, active.deadline = loaded, time.monotonic(), float("inf")
        model.start_failures = 0
        self._meter.loaded(active)
        if model.work is None:
            model.begin(loaded.cut)
        verified = {} if loaded.verified is None else {"verified": loaded.verified}
        self._run.update_model(model.name, engine_details=loaded.details, **verified)
        if loaded.verified:
            self._view.state(model.name, "loading", str(loaded.verified), replica=active.number)
        self._view.state(model.name, "running", replica=active.number)
        self._feed(active)
        self._replica_source.loaded(active, self._state)

    def _feed(self, active: ActiveReplica) -> None:
        """Give a replica chunks; where it has none and none waits, it is done with its model."""
        work = active.model.work
        assert work is not None
        while not active.draining and self._has_room(active, work) and (chunk := work.take()):
            active.in_flight.append((active.replica.score(chunk), chunk))
        if active.in_flight:
            return
        other = None if active.draining else self._state.next_sharing_weights(active.model)
        if other is not None:
            self._go_over(active, other)
        else:
            active.pending_call = "close", active.replica.close()
            active.deadline = time.monotonic() + min(CLOSE_SECONDS, self._replica_source.start_deadline)

    def _has_room(self, active: ActiveReplica, work: PendingChunks) -> bool:
        """Whether a replica takes another chunk. One that may be deadly is alone with it: what was scored just before may not
        arrive when the process dies, and would be blamed for it.
        """
        if not active.in_flight or work.next is None:
            return True
        held = [chunk for _, chunk in active.in_flight]
        return len(held) < self._replica_source.depth and not any(map(work.doubtful, [*held, work.next]))

    def _go_over(self, active: ActiveReplica, other: ModelState) -> None:
        """A replica is done with its model, and goes on with another one of which it has loaded all."""
        replica = self._replica_source.reuse(active, other.name, self._state)
        self._state.active_replicas.remove(active)
        self._finish(active.model)
        after = ActiveReplica(other, replica, other.replicas_started, time.monotonic())
        other.replicas_started += 1
        self._state.active_replicas.append(after)
        with self._guarded(other):
            self._load(after, active.model.name)

    def _store(self, active: ActiveReplica, chunk: Chunk, scored: Scored) -> None:
        name, replica = active.model.name, active.replica
        self._commits.add(Arrival(active, replace(chunk), scored))  # without the rows that this process may have made of it
        active.scored += 1
        if active.scored == 1 and active.loaded is not None:
            seconds = {**active.loaded.seconds, "first_answer": time.monotonic() - active.started_at}
            reused = active.loaded.reused
            self._run.add_start(name, start_record(active.number, replica.where, replica.placement, seconds, reused=reused))

    def _commit(self) -> None:
        """Write what has arrived. Answers that cannot be written end their model, and are asked again by the next command."""
        for arrivals, written in self._commits.write():
            model = arrivals[0].active.model
            with self._guarded(model):
                seconds = written.result() / len(arrivals)
                for each in arrivals:
                    self._meter.stored(each.active, each.chunk, each.scored, seconds)
                    self._view.advance(model.name, each.scored.requests, replica=each.active.number, chunk=each.chunk)

    def _closed(self, active: ActiveReplica, *, free: bool) -> None:
        """A replica is done with its model: it takes another one, or ends."""
        assignment = self._replica_source.reassign(active, self._state, free=free)
        if assignment is None:
            self._drop(active)
        else:
            self._state.active_replicas.remove(active)
        self._finish(active.model)
        if assignment is not None:
            self._begin(assignment)

    def _release(self, active: ActiveReplica) -> None:
        """A replica ends while its model has work: at once while it loads, else with the chunks that it holds."""
        if active not in self._state.active_replicas or not active.model.has_work:
            return
        self._view.state(active.model.name, "running", "ends early: its devices are needed", replica=active.number)
        if active.loaded is None:
            self._drop(active)
        else:
            active.draining = True

    def _drop(self, active: ActiveReplica) -> None:
        if active in self._state.active_replicas:
            self._state.active_replicas.remove(active)
            self._replica_source.end(active.replica)

    def _finish(self, model: ModelState) -> None:
        """A model is done when its last replica is: those that still load would find nothing to do."""
        self._commit()
        if model.error is None and not model.has_work and all(m.loaded is None for m in self._state.replicas_of(model)):
            for active in self._state.replicas_of(model):
                self._drop(active)
            self._run.merge_answers(model.name)
            record_replies(self._run, model.prepared)
            self._run.clear_model_failure(model.name)
            self._view.state(model.name, "done")

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _lost(self, active: ActiveReplica, how: str) -> None:
        """A replica's process is gone. While it scored, its first chunk is suspect; the others only wait again."""
        model = active.model
        if not active.in_flight:
            if active.loaded is None:
                self._start_failed(active, f"died while loading ({how})", START_ATTEMPTS)
            else:  # it was closing
                self._drop(active)
                self._finish(model)
            return
        assert model.work is not None
        (_, suspect), *others = active.in_flight
        active.in_flight.clear()
        for _, chunk in reversed(others):
            model.work.give_back(chunk)
        given_up = model.work.killed(suspect)
        self._meter.chunk_failed(model.name)
        note = f"replica {active.number} died while scoring ({how}), its chunks are queued again"
        self._view.state(model.name, "loading", note, replica=active.number, chunk=suspect)
        self._requests_failed(model, given_up, EngineError("the worker died every time it scored this request"))
        self._drop(active)
        self._restart(active)

    def _too_late(self, active: ActiveReplica) -> None:
        if active.loaded is None:
            reason = f"did not load within {self._replica_source.start_deadline:.0f} s"
            self._start_failed(active, reason, HANG_ATTEMPTS)
        else:  # all that it has scored is stored
            self._drop(active)
            self._finish(active.model)

    def _start_failed(self, active: ActiveReplica, reason: str, allowed: int) -> None:
        """A replica that can't be started is asked for again a few times; then its model is given up, or goes on without it."""
        model = active.model
        model.start_failures += 1
        self._drop(active)
        if model.start_failures < allowed:
            self._restart(active)
            return
        tried = f"a replica {reason}; {model.start_failures} starts in a row failed"
        if any(other.loaded is not None for other in self._state.replicas_of(model)):
            # The model isn't at fault: another replica of it is active. The source may still start one where that pays.
            self._view.state(model.name, "running", f"{tried}, the others continue", replica=active.number)
        else:
            self._give_up(model, EngineError(f"{model.name}: {tried}"))

    def _restart(self, active: ActiveReplica) -> None:
        """Ask for a replica of a model again, if there is still something for it to do."""
        if active.model.has_work:
            self._meter.restarted(active.model.name)
            self._replica_source.reschedule(active, self._state)
        else:
            self._finish(active.model)

    def _row_failed(self, active: ActiveReplica, error: EngineError, row: int) -> None:
        """A row of the first chunk can't be scored: the requests that read it are tried apart, or given up."""
        model = active.model
        assert model.work is not None
        _, chunk = active.in_flight.popleft()
        self._meter.chunk_failed(model.name)
        self._requests_failed(model, model.work.failed(chunk, requests_of_row(chunk, row)), error)
        self._feed(active)

    def _requests_failed(self, model: ModelState, requests: Sequence[str], error: EngineError) -> None:
        """Write down requests that failed alone. Raises where that ends the model: so many that it is at fault, or `strict`."""
        if not requests:
            return
        tables, total = model.prepared.tables, len(model.prepared.encoded)
        names = name_samples(tables, requests)
        reasons = [f"{names[request]}: {error}" for request in requests]
        kind: Kind = failure_kind(error)
        wrong = EngineError if kind == "retryable" or isinstance(error, FailingError) else InputError
        if self._strict:
            raise wrong(f"{model.name}: {reasons[0]}") from error
        model.failed += len(requests)
        self._meter.requests_failed(model.name, len(requests))
        self._run.add_failures([(model.name, *pair) for pair in zip(requests, reasons, strict=True)], kind)
        self._view.advance(model.name, 0, len(requests))
        if PendingChunks.hopeless(model.failed, total):
            many = f"{model.failed:,} of its {total:,} requests failed, the last one"
            raise wrong(f"{model.name}: {many} {reasons[-1]}") from error

    def _give_up(self, model: ModelState, error: Exception) -> None:
        if model.error is None:
            model.error = error
            self._commit()
            recover(self._run, model.prepared)
            record_replies(self._run, model.prepared)
            record_failures(self._run, {model.name: error})
            self._view.state(model.name, "failed", in_words(error))
        for active in self._state.replicas_of(model):
            self._drop(active)
