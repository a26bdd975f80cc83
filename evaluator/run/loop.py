"""The one scoring loop: chunks wait, are in flight, done or given up, whatever scores them (see `replica`).

The supplier says which replica starts on which model; here is what is asked of it then, what becomes of its answers, and what
of its failures. Answers are stored by this process alone.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from evaluator.run.askable import name_samples
from evaluator.run.earlier import earlier, recover
from evaluator.run.failures import Failures, failure_kind, record_failures
from evaluator.run.metrics import Meter
from evaluator.run.prepare import PreparedModel, engine_rows
from evaluator.run.progress import ProgressView
from evaluator.run.replica import Call, LostError, Member, Model, Offer, State, Supplier
from evaluator.run.score import Scored, requests_of_row, start_record
from evaluator.run.work import Work, chunk_name
from evaluator.run.worker import Load, Loaded
from evaluator.store.run import CHAT, TIMINGS_APART, Kind, Run
from evaluator_serving.engine import DeviceKind
from evaluator_serving.errors import EngineError, FailingError, InputError, in_words
from evaluator_serving.registry import engine_class
from evaluator_serving.rows import Chunk

START_ATTEMPTS = 5
"""Times in a row that a model's replicas may die while they load before it is given up."""
HANG_ATTEMPTS = 2
"""The same for replicas that have not loaded in time: each of these costs the whole deadline."""
CLOSE_SECONDS = 60.0
"""For an engine to close; then its process is ended."""


class Loop:
    """The loop. One instance scores one command's models."""

    def __init__(self, run: Run, view: ProgressView, supplier: Supplier, meter: Meter, *, verify: bool, strict: bool) -> None:
        self._run = run
        self._view = view
        self._supplier = supplier
        self._meter = meter
        self._verify = verify
        self._strict = strict
        self._state = State({})
        self._timed = 0

    def execute(self, models: Sequence[PreparedModel]) -> dict[str, Exception]:
        """Score all models. Returns the errors of those that could not be finished."""
        self._state = State({model.name: Model(model, failed=len(model.given_up)) for model in models})
        done = [model.name for model in models if not model.encoded]
        self._run.clear_model_failure(*done)
        for name in done:
            self._view.state(name, "done", "all answers are there already")
        self._run.merge_timings()
        state = self._state
        self._meter.begin(state)
        try:
            while state.members or any(model.has_work for model in state.models.values()):
                for offer in self._supplier.offers(state):
                    self._begin(offer)
                for member in self._supplier.spared():
                    self._spare(member)
                self._meter.look(state)
                self._step()
        finally:
            for member in list(state.members):
                self._drop(member)
            for model in models:
                recover(self._run, model)
            self._meter.look(state, now=True)
            self._supplier.close()
        return {name: model.error for name, model in state.models.items() if model.error is not None}

    def _step(self) -> None:
        """Wait for the next call that comes back, and see to it; then to what has come too late, or can't come."""
        waiting = {member.call: member for member in self._state.members}
        call = self._supplier.wait(list(waiting))
        if call is not None:
            with self._guarded(waiting[call].model):
                self._handle(waiting[call], call)
        now = time.monotonic()
        for member in [m for m in self._state.members if now > m.deadline]:
            self._too_late(member)
        for name, error in self._supplier.out_of_reach(self._state).items():
            self._give_up(self._state.models[name], error)

    @contextlib.contextmanager
    def _guarded(self, model: Model) -> Iterator[None]:
        """Whatever one model throws in the body ends that model alone."""
        caught = Failures()
        with caught.of(model.name):
            yield
        for error in caught.values():
            self._give_up(model, error)

    def _handle(self, member: Member, call: Call[Any]) -> None:
        """See to what one call has come to."""
        try:
            value = call.result()
        except LostError as lost:
            self._lost(member, str(lost))
            return
        except EngineError as error:
            if not member.flight or error.row is None:
                raise
            self._row_failed(member, error, error.row)
            return
        if member.flight:
            _, chunk = member.flight.popleft()
            self._store(member, chunk, value)
            self._feed(member)
            return
        assert member.busy is not None
        done, _ = member.busy
        if done == "fetch":
            self._load(member)
        elif done == "load":
            self._loaded(member, value)
        else:
            self._closed(member, free=value)

    # --- a replica's life ----------------------------------------------------------------------------------------

    def _begin(self, offer: Offer) -> None:
        """Have the weights brought to a replica's machine. That takes as long as it takes: only loading has a deadline."""
        model = self._state.models[offer.model]
        member = Member(model, offer.replica, model.numbers, time.monotonic())
        model.numbers += 1
        self._state.members.append(member)
        with self._guarded(model):
            if model.workload is None:
                self._size(model)
            load = self._what(member)
            if note := self._supplier.fetching(load):
                self._view.state(model.name, "loading", note, replica=member.number)
            member.busy = "fetch", member.replica.fetch(load)

    def _size(self, model: Model) -> None:
        """Say what an engine is loaded with: room for all models that it may score."""
        alike = [other for other in self._state.alike(model) if other.has_work]
        rows, workload = engine_rows([other.prepared for other in alike])
        for other in alike:
            other.rows, other.workload = rows, workload

    def _what(self, member: Member) -> Load:
        prepared = member.model.prepared
        return Load(
            engine=prepared.info.engine,
            source=prepared.source,
            options=member.replica.options(prepared.spec.options),
            rows=member.model.rows,
            workload=member.model.workload,
            verify=self._verify,
            journal=self._run.journal(member.model.name),
            earlier=earlier(self._run, prepared),
        )

    def _load(self, member: Member, held_for: str = "") -> None:
        """Have a model loaded; `held_for` names the one for which its weights are loaded already."""
        info = member.model.prepared.info
        which = f", replica {member.number}" if member.number else ""
        how = f"with the weights of {held_for}" if held_for else f"loading into {info.engine} ({info.dtype})"
        note = f"{how}{which}"
        self._view.state(member.model.name, "loading", note, replica=member.number)
        member.busy = "load", member.replica.load(self._what(member))
        member.deadline = time.monotonic() + self._supplier.start_deadline

    def _loaded(self, member: Member, loaded: Loaded) -> None:
        model = member.model
        member.busy = None
        member.loaded, member.since, member.deadline = loaded, time.monotonic(), float("inf")
        model.start_failures = 0
        self._meter.loaded(member)
        if model.work is None:
            _cut(model, loaded.device_kind)
        verified = {} if loaded.verified is None else {"verified": loaded.verified}
        self._run.update_model(model.name, engine_details=loaded.details, **verified)
        if loaded.verified:
            self._view.state(model.name, "loading", str(loaded.verified), replica=member.number)
        self._view.state(model.name, "running", replica=member.number)
        self._feed(member)
        self._supplier.loaded(member, self._state)

    def _feed(self, member: Member) -> None:
        """Give a replica chunks; where it has none and none waits, it is done with its model."""
        work = member.model.work
        assert work is not None
        while not member.leaving and self._has_room(member, work) and (chunk := work.take()):
            member.flight.append((member.replica.score(chunk), chunk))
        if member.flight:
            return
        other = None if member.leaving else self._state.next_alike(member.model)
        if other is not None:
            self._go_over(member, other)
        else:
            member.busy = "close", member.replica.close()
            member.deadline = time.monotonic() + min(CLOSE_SECONDS, self._supplier.start_deadline)

    def _has_room(self, member: Member, work: Work) -> bool:
        """Whether a replica takes another chunk. One that may be deadly is alone with it: what was scored just before may not
        arrive when the process dies, and would be blamed for it.
        """
        if not member.flight or work.next is None:
            return True
        held = [chunk for _, chunk in member.flight]
        return len(held) < self._supplier.depth and not any(map(work.doubtful, [*held, work.next]))

    def _go_over(self, member: Member, other: Model) -> None:
        """A replica is done with its model, and goes on with another one of which it has loaded all."""
        replica = self._supplier.stay(member, other.name, self._state)
        self._state.members.remove(member)
        self._finish(member.model)
        after = Member(other, replica, other.numbers, time.monotonic())
        other.numbers += 1
        self._state.members.append(after)
        with self._guarded(other):
            self._load(after, member.model.name)

    def _store(self, member: Member, chunk: Chunk, scored: Scored) -> None:
        name, replica, begun = member.model.name, member.replica, time.perf_counter()
        self._run.add_answers(self._run.answers_folder(name), member.model.prepared.kinds, scored.answers)
        self._run.add_timing(scored.timing(name, str(member.number)))
        self._timed += 1
        if self._timed % TIMINGS_APART == 0:
            self._run.merge_timings()
        self._meter.stored(member, scored, time.perf_counter() - begun)
        self._view.advance(name, len(scored.answers), replica=member.number, chunk=chunk_name(chunk))
        member.scored += 1
        if member.scored == 1 and member.loaded is not None:
            seconds = {**member.loaded.seconds, "first_answer": time.monotonic() - member.begun}
            reused = member.loaded.reused
            self._run.add_start(name, start_record(member.number, replica.where, replica.placement, seconds, reused=reused))

    def _closed(self, member: Member, *, free: bool) -> None:
        """A replica is done with its model: it takes another one, or ends."""
        offer = self._supplier.follow(member, self._state, free=free)
        if offer is None:
            self._drop(member)
        else:
            self._state.members.remove(member)
        self._finish(member.model)
        if offer is not None:
            self._begin(offer)

    def _spare(self, member: Member) -> None:
        """A replica ends while its model has work: at once while it loads, else with the chunks that it holds."""
        if member not in self._state.members or not member.model.has_work:
            return
        self._view.state(member.model.name, "running", "ends early: its devices are wanted", replica=member.number)
        if member.loaded is None:
            self._drop(member)
        else:
            member.leaving = True

    def _drop(self, member: Member) -> None:
        if member in self._state.members:
            self._state.members.remove(member)
            self._supplier.end(member.replica)

    def _finish(self, model: Model) -> None:
        """A model is done when its last replica is: those that still load would find nothing to do."""
        if model.error is None and not model.has_work and all(m.loaded is None for m in self._state.of(model)):
            for member in self._state.of(model):
                self._drop(member)
            self._note_replies(model)
            self._run.clear_model_failure(model.name)
            self._view.state(model.name, "done")

    def _note_replies(self, model: Model) -> None:
        """Write down what its answers to chats took, and who gave them."""
        if CHAT in model.prepared.kinds.values():
            made, facts = engine_class(model.prepared.info.engine), self._run.reply_facts(model.name)
            tokens = (facts.get("prompt_tokens", 0), facts.get("answer_tokens", 0))
            dollars = made.dollars(model.prepared.spec.options, *tokens)
            facts |= {"repeatable": made.repeatable, **({"dollars": dollars} if dollars is not None else {})}
            self._run.update_model(model.name, chats=facts)

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _lost(self, member: Member, how: str) -> None:
        """A replica's process is gone. While it scored, its first chunk is suspect; the others only wait again."""
        model = member.model
        if not member.flight:
            if member.loaded is None:
                self._start_failed(member, f"died while it loaded ({how})", START_ATTEMPTS)
            else:  # it was closing
                self._drop(member)
                self._finish(model)
            return
        assert model.work is not None
        (_, suspect), *others = member.flight
        member.flight.clear()
        for _, chunk in reversed(others):
            model.work.give_back(chunk)
        given_up = model.work.killed(suspect)
        self._meter.chunk_failed(model.name)
        note = f"replica {member.number} died while it scored ({how}), its chunks wait again"
        self._view.state(model.name, "loading", note, replica=member.number, chunk=chunk_name(suspect))
        self._requests_failed(model, given_up, EngineError("the worker died every time it scored this request"))
        self._drop(member)
        self._restart(member)

    def _too_late(self, member: Member) -> None:
        if member.loaded is None:
            reason = f"did not load within {self._supplier.start_deadline:.0f} s"
            self._start_failed(member, reason, HANG_ATTEMPTS)
        else:  # all that it has scored is stored
            self._drop(member)
            self._finish(member.model)

    def _start_failed(self, member: Member, reason: str, allowed: int) -> None:
        """A replica that can't be started is asked for again a few times; then its model is given up, or goes on without it."""
        model = member.model
        model.start_failures += 1
        self._drop(member)
        if model.start_failures < allowed:
            self._restart(member)
            return
        tried = f"a replica {reason}; {model.start_failures} starts in a row failed"
        if any(other.loaded is not None for other in self._state.of(model)):
            # The model isn't at fault: another replica of it is at work. The supplier may still start one where that pays.
            self._view.state(model.name, "running", f"{tried}, the others go on", replica=member.number)
        else:
            self._give_up(model, EngineError(f"{model.name}: {tried}"))

    def _restart(self, member: Member) -> None:
        """Ask for a replica of a model again, if there is still something for it to do."""
        if member.model.has_work:
            self._meter.restarted(member.model.name)
            self._supplier.again(member, self._state)
        else:
            self._finish(member.model)

    def _row_failed(self, member: Member, error: EngineError, row: int) -> None:
        """A row of the first chunk can't be scored: the requests that read it are tried apart, or given up."""
        model = member.model
        assert model.work is not None
        _, chunk = member.flight.popleft()
        self._meter.chunk_failed(model.name)
        self._requests_failed(model, model.work.failed(chunk, requests_of_row(chunk, row)), error)
        self._feed(member)

    def _requests_failed(self, model: Model, requests: Sequence[str], error: EngineError) -> None:
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
        if Work.hopeless(model.failed, total):
            many = f"{model.failed:,} of its {total:,} requests failed, the last one"
            raise wrong(f"{model.name}: {many} {reasons[-1]}") from error

    def _give_up(self, model: Model, error: Exception) -> None:
        if model.error is None:
            model.error = error
            recover(self._run, model.prepared)
            self._note_replies(model)
            record_failures(self._run, {model.name: error})
            self._view.state(model.name, "failed", in_words(error))
        for member in self._state.of(model):
            self._drop(member)


def _cut(model: Model, device: DeviceKind) -> None:
    """Cut a model's pending requests into chunks for the kind of device that its first replica is on."""
    model.work = Work.of(model.prepared.pending_chunks(device))
    model.chunks = len(model.work.waiting)
