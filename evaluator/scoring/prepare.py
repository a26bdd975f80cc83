"""Everything that can go wrong before weights are loaded goes wrong here: data, models, encodings, the run folder."""

import contextlib
import functools
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from evaluator import __version__, logs
from evaluator.reports.notes import doubts, read_how
from evaluator.scoring.coverage import tokens_of_task
from evaluator.scoring.pending_chunks import PendingChunks
from evaluator.scoring.progress import ModelProgress
from evaluator.scoring.skip_rules import Encodes, Skipped, abilities, encode, missing_head, skipped_by_task, useless
from evaluator.scoring.spec import NAME_LIMIT, ModelSpec, RunSpec
from evaluator.store.asked import Asked
from evaluator.store.names import folder_name
from evaluator.store.record import same_model
from evaluator.store.run import Run
from evaluator.tasks.base import Task
from evaluator.tasks.limit import asked
from evaluator.tasks.stored import task_entry
from evaluator.vocabulary import ORDER, Protocol_, Rendered, Samples
from evaluator_serving.chats import Chat
from evaluator_serving.checks.verify import sample_rows
from evaluator_serving.engine import DeviceKind, EngineInfo
from evaluator_serving.errors import InputError, ModelError
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.decoding import decoding_record
from evaluator_serving.models.source import FileTokens, ModelSource
from evaluator_serving.registry import check_fit, engine_class
from evaluator_serving.requests import Choice, Request, kind
from evaluator_serving.rows import Chunk, Encoded, Row, Workload, chunks, make_chunk, merge
from evaluator_serving.secrets import redacted

REMEDY = "give it a name of its own (--model NAME=MODEL, in a sweep file name = …)"


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with its samples, those within the limit."""

    task: Task
    samples: Samples


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that is known to be able to do its work, and the work.

    Attributes:
        name: its name in the results.
        spec, source, info: what was asked, where it is, what its numbers depend on.
        heads: task name → heads used for it.
        tables: task name → Rendered.table.
        encoded: the requests within the limit, answered ones included (so that an interrupted run cuts the same chunks again,
            and its numbers are the same to the last bit); empty if all are answered.
        answered: ids of the requests that have an answer already.
        kinds: request id → kind, for all of `encoded`.
        total: distinct requests asked of the model now.
        limit: samples asked of each task, None for all.
        refused: (request id, reason) of those that can't be asked of this model.
        text_tokens: task name → how much of its texts the tokenizer knows (see `evaluator.scoring.coverage`); empty where all
            requests are answered, for then nothing was encoded.
        unasked: task → why it can't ask this model; it isn't in `heads` and `tables` then.
        losses: task → which of its samples can't be asked.
        given_up: ids of the requests that failed whenever they were tried, and aren't tried again.
        encode_seconds: what it took to make token rows of the requests.
    """

    name: str
    spec: ModelSpec
    source: ModelSource
    info: EngineInfo
    heads: Mapping[str, frozenset[str]]
    tables: Mapping[str, pl.DataFrame]
    encoded: tuple[Encoded, ...]
    answered: frozenset[str]
    kinds: Mapping[str, str]
    total: int
    limit: int | None = None
    refused: tuple[tuple[str, str], ...] = ()
    text_tokens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)
    skipped_by_task: Mapping[str, Skipped] = field(default_factory=dict)
    given_up: frozenset[str] = frozenset()
    encode_seconds: float = 0.0
    dated: bool = False

    @property
    def weights(self) -> tuple[Any, ...]:
        """What is loaded for it: models for which this is equal (a model under several system prompts) share an engine."""
        source = self.source
        heads = frozenset().union(*self.heads.values())
        loaded = (source.spec, source.revision, source.pickled, source.code, source.thinking)
        return self.info.engine, *loaded, self.spec.options, heads

    def pending_chunks(self, device: DeviceKind) -> list[Chunk]:
        """The chunks of what has no answer yet, sized by the engine for `device`."""
        tokens = engine_class(self.info.engine).chunk_tokens(self.source.parameters, device)
        settled = self.answered | self.given_up
        pending = []
        for chunk in chunks(self.encoded, tokens=tokens):
            rest = [item for item in chunk.encoded if item.request not in settled]
            if len(rest) == len(chunk.encoded):
                pending.append(chunk)
            elif rest:
                pending.append(make_chunk(rest))
        return pending

    def since(self, done: Set[str]) -> "PreparedModel":
        """The same work, less the requests that another process has answered while it was prepared."""
        answered = self.answered | (done & {item.request for item in self.encoded})
        given_up = self.given_up - answered
        left = len(answered) + len(given_up) < self.total
        return replace(self, answered=answered, given_up=given_up, encoded=self.encoded if left else ())

    @property
    def progress(self) -> ModelProgress:
        """How far it is before anything has been scored."""
        return ModelProgress(self.name, self.total, len(self.answered), len(self.given_up))

    @property
    def entry(self) -> dict[str, Any]:
        """The model's entry in run.json."""
        adapter = {"adapter": asdict(self.source.adapter)} if self.source.adapter else {}
        condition = {"condition": asdict(self.spec.condition)} if self.spec.condition else {}
        spoken = "chat" in frozenset().union(*self.heads.values())
        decoding = decoding_record(self.source, self.info.engine, self.spec.options.extra) if spoken else {}
        return {
            "spec": self.spec.spec,
            "revision": self.info.revision,
            "engine": self.info.engine,
            "dtype": self.info.dtype,
            "versions": self.info.versions,
            "details": self.info.details,
            "fingerprint": fingerprint(self.info),
            "heads_used": {task: sorted(heads) for task, heads in self.heads.items()},
            "asked": {task: self._asked(task) for task in self.tables},
            "unasked": dict(self.unasked),
            "text_tokens": {task: dict(counts) for task, counts in self.text_tokens.items()},
            "facts": self._facts,
            **adapter,
            **({"pickled": True} if self.source.pickled else {}),
            **({"code": asdict(self.source.code)} if self.source.code else {}),
            **({"tokenizer": asdict(self.source.tokenizer)} if self.source.tokenizer else {}),
            **condition,
            **({"decoding": decoding} if decoding else {}),
            **({"date": self.spec.day.date} if self.dated and self.spec.day else {}),
        }

    @property
    def _facts(self) -> dict[str, Any]:
        """What the model's configuration says of it, for figures over models: see `evaluator.reports.facts`."""
        family = getattr(self.source.config, "model_type", None)
        known = {"parameters": self.source.parameters or None, "family": family or None}
        return {name: value for name, value in known.items() if value is not None}

    def _asked(self, task: str) -> Asked:
        known = asked(self.limit, self.tables[task]["sample"].n_unique())
        loss = self.skipped_by_task.get(task)
        return {**known, "skipped": loss.samples, "reason": loss.reason} if loss else known


def engine_rows(models: Sequence[PreparedModel]) -> tuple[tuple[Row, ...], Workload]:
    """What an engine is loaded with that scores these models: some rows of every head, and how much all of them are."""
    asked = [[item for item in model.encoded if item.request not in model.given_up] for model in models]
    rows = [row for items in asked for row in merge(items).rows]
    return tuple(sample_rows(rows)), Workload.of(rows)


def load_tasks(spec: RunSpec) -> list[LoadedTask]:
    """Read and validate every data set of the run."""
    names = [task.name for task in spec.tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"task {name} is given twice: give each task once")
    for task in spec.tasks:
        if spec.protocol not in task.protocols:
            known = ", ".join(sorted(task.protocols))
            raise InputError(f"task {task.name} has no protocol {spec.protocol}: choose {known}, or leave the task out")
    data = replace(spec.data, protocol=spec.protocol)
    return [LoadedTask(task, task.load_limited(data, spec.limit)) for task in spec.tasks]


class Renderer:
    """Renders each task once for each set of heads."""

    def __init__(self, protocol: Protocol_) -> None:
        self._protocol = protocol
        self._rendered: dict[tuple[str, frozenset[str]], Rendered] = {}

    def render(self, loaded: LoadedTask, heads: frozenset[str]) -> Rendered:
        """The task's requests for models with these heads."""
        key = (loaded.task.name, heads)
        if key not in self._rendered:
            made = loaded.task.render(loaded.samples, heads, self._protocol)
            places = loaded.samples.frame.select("sample", ORDER, *(["id"] if "id" in loaded.samples.frame.columns else []))
            self._rendered[key] = replace(made, table=made.table.join(places, on="sample", how="left", maintain_order="left"))
        return self._rendered[key]


class Encodings:
    """What requests became for models, once for all whose encoders are alike: a sweep has several models with one tokenizer,
    and token rows of all its requests would take minutes and gigabytes a model."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Encoded]] = {}

    def of(self, source: ModelSource) -> dict[str, Encoded]:
        """Request id → what it became for models like this one, so far."""
        from evaluator_serving.encoding import likeness

        return self._known.setdefault(likeness(source), {})


def _settled(out: Path, name: str, print_: str) -> tuple[set[str], set[str]]:
    """Requests that the model of this fingerprint has answered in the run, under this name or else another; and those that
    were given up.
    """
    if not (out / "run.json").is_file():
        return set(), set()
    run = Run.open(out)
    models = run.record["models"]
    known = name if models.get(name, {}).get("fingerprint") == print_ else same_model(models, print_)
    if known is None:
        return set(), set()
    done = run.done(known)
    return done, run.given_up(known) - done


def _engine(spec: ModelSpec, out: Path, source: ModelSource, heads: frozenset[str]) -> str:
    """The engine asked for. `auto` stays with the one that the run has answers of where it can do what is asked now.

    Raises InputError where the engine can't score these heads, or has no use for an option: before anything is encoded.
    """
    if spec.engine == "auto" and (out / "run.json").is_file():
        run = Run.open(out)
        entry = run.record["models"].get(spec.name, {})
        if "fingerprint" in entry and run.done(spec.name):
            with contextlib.suppress(InputError):
                check_fit(entry["engine"], source, spec.options, heads)
                return str(entry["engine"])
    from evaluator_serving.choose import choose_engine, why_slower

    engine = choose_engine(source, heads, spec.options) if spec.engine == "auto" else spec.engine
    if spec.engine == "auto" and (reason := why_slower(source, heads, spec.options)):
        warnings.warn(f"{spec.name}: {reason}, so the slower {engine} engine scores it", stacklevel=2)
    check_fit(engine, source, spec.options, heads)
    return engine


def source_of(spec: ModelSpec) -> ModelSource:
    """What a model is, and can answer, under its condition. Raises InputError as `resolve` does."""
    from evaluator_serving.models.resolving import resolve

    allowed = {"allow_pickle": spec.allow_pickle, "trust_remote_code": spec.trust_remote_code}
    source = resolve(spec.spec, chat_template=spec.chat_template, **allowed)
    return replace(source, system=spec.condition.system if spec.condition else None, thinking=spec.thinking, day=spec.day)


def prepare_model(
    spec: ModelSpec,
    source: ModelSource,
    run: RunSpec,
    tasks: Sequence[LoadedTask],
    renderer: Renderer,
    encodings: Encodings | None = None,
) -> PreparedModel:
    """Render a model's tasks for it and encode every request that has no answer yet.

    `encodings` are those of the run's other models, None where there are none.

    A task that can't ask the model, and a sample that can't be asked, are left out and told; with `run.strict` they raise
    InputError. Raises ModelError where no task can ask it.
    """
    mine = [loaded for loaded in tasks if not spec.tasks or loaded.task.name in spec.tasks]
    heads, unasked = _usable(mine, source, spec, strict=run.strict)
    rendered = {
        loaded.task.name: renderer.render(loaded, heads[loaded.task.name]) for loaded in mine if loaded.task.name in heads
    }
    tables = {task: made.table for task, made in rendered.items()}
    requests = {key: request for made in rendered.values() for key, request in made.requests.items()}
    source = _with_file_tokens(spec, source, run.out, list(requests.values()))
    engine = _engine(spec, run.out, source, frozenset().union(*heads.values()))
    _check_sent(spec, engine, requests)
    templated = source.chat_template == "user" or any(isinstance(one, Chat | Choice) for one in requests.values())
    if spec.thinking and not templated:
        raise InputError(
            f"{spec.name}: --thinking is for tasks asked in a chat template: leave it out, or add --chat-template user"
        )
    info = identity(engine, source, spec.options)
    known, given = _settled(run.out, spec.name, fingerprint(info))
    encoded: list[Encoded] = []
    refused: dict[str, str] = {}
    begun = time.perf_counter()
    if not requests.keys() <= known:
        known_rows = encodings.of(source) if encodings else None
        encoder = functools.partial(_encoder, source, strict=run.strict)
        encoded, refused = encode(requests, encoder, tables, spec.name, strict=run.strict, known=known_rows)
    encode_seconds = time.perf_counter() - begun
    lost = skipped_by_task(tables, refused)
    for loaded in mine:
        task = loaded.task.name
        if task in lost and lost[task].too_much(loaded.task):
            unasked[task] = str(lost.pop(task))
            del tables[task], heads[task]
    if not tables:
        raise useless(spec.name, unasked.values())
    left = {request for table in tables.values() for request in table["request"]}
    encoded = [item for item in encoded if item.request in left]
    answered = frozenset(known & left)
    # So many were given up that the model was at fault, which may have been mended since: all of them are asked again.
    again = run.retry or run.strict or PendingChunks.hopeless(len(given & left), len(left))
    given_up = frozenset() if again else frozenset(given & left)
    texts = _text_tokens(tables, encoded) if encoded else {}
    total = len(left - refused.keys())
    if len(answered) + len(given_up) == total:
        encoded = []
    kinds = {item.request: kind(requests[item.request]) for item in encoded}
    return PreparedModel(
        name=spec.name,
        spec=spec,
        source=source,
        info=info,
        heads=heads,
        tables=tables,
        encoded=tuple(encoded),
        answered=answered,
        kinds=kinds,
        total=total,
        limit=run.limit,
        refused=tuple((request, reason) for request, reason in refused.items() if request in left),
        text_tokens=texts,
        unasked=unasked,
        skipped_by_task=lost,
        given_up=given_up,
        encode_seconds=encode_seconds,
        dated=templated and not source.served and _writes_date(source),
    )


def _check_sent(spec: ModelSpec, engine: str, requests: Mapping[str, Request]) -> None:
    """Raise InputError where answers would be called drawn at a temperature that the model isn't told."""
    drawn = {request.temperature for request in requests.values() if isinstance(request, Chat)} - {0}
    if drawn and "temperature" in engine_class(engine).unsent(spec.options):
        raise InputError(
            f"{spec.name}: answers at temperature {max(drawn):g} are asked for, but omit=temperature keeps it out of requests: "
            "leave out --temperature (and --answers), or leave temperature out of omit"
        )


def _writes_date(source: ModelSource) -> bool:
    from evaluator_serving.encoding.template import writes_date

    return writes_date(source)


def _with_file_tokens(spec: ModelSpec, source: ModelSource, out: Path, requests: Sequence[Request]) -> ModelSource:
    """The source with what is known of its tokenizer.json; a run that has it written down keeps it, as it keeps the answers."""
    from evaluator_serving.models.file_tokens import with_file_tokens

    entry = Run.open(out).record["models"].get(spec.name, {}) if (out / "run.json").is_file() else {}
    if "tokenizer" in entry and entry["revision"] == source.revision:
        return replace(source, tokenizer=FileTokens(**entry["tokenizer"]))
    return with_file_tokens(source, requests)


def _encoder(source: ModelSource, *, strict: bool) -> Encodes:
    """The model's encoder. Raises ModelError where it can't be asked as it shall be, with `strict` InputError."""
    from evaluator_serving.encoding import encoder_for

    try:
        return encoder_for(source)
    except ModelError as error:
        if strict:
            raise InputError(str(error)) from error
        raise


def _usable(
    tasks: Sequence[LoadedTask], source: ModelSource, spec: ModelSpec, *, strict: bool
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Task → the heads of the model that it can use; and of the other tasks, why they can't ask it."""
    heads: dict[str, frozenset[str]] = {}
    unasked: dict[str, str] = {}
    can = abilities(source.heads)
    for loaded in tasks:
        task = loaded.task
        if not task.heads:
            raise InputError(f"task {task.name} asks no model: see evaluator run {task.name} --help")
        if reason := missing_head(task, can, spec.spec):
            if strict:
                raise InputError(f"{reason}: choose another model or task, or leave --strict out")
            unasked[task.name] = reason
        else:
            heads[task.name] = task.uses(can)
    if not heads:
        raise useless(spec.name, unasked.values())
    return heads, unasked


def _text_tokens(tables: Mapping[str, pl.DataFrame], encoded: Sequence[Encoded]) -> dict[str, dict[str, Any]]:
    by_id = {item.request: item for item in encoded}
    return {task: tokens_of_task(table, by_id) for task, table in tables.items()}


def check_names(models: Sequence[ModelSpec]) -> None:
    """Refuse two models with one name, or names that are one folder: their results could not be told apart.

    And names that are more than a line, which tables and reports could not show, or what reports call all models together.
    """
    seen: dict[str, ModelSpec] = {}
    for model in models:
        if model.name == "all":
            raise InputError(f"the model's name 'all' is what reports call all models together: {REMEDY}")
        if not model.name.isprintable():
            raise InputError(f"the model's name {model.name!r} holds characters that can't be printed: {REMEDY}")
        if len(model.name.encode()) > NAME_LIMIT:
            raise InputError(f"the model's name {model.name!r} is longer than {NAME_LIMIT} bytes: {REMEDY}")
        other = seen.setdefault(folder_name(model.name).lower(), model)
        if other is not model:
            same = repr(model.name) if other.name == model.name else f"{other.name!r} and {model.name!r}, one folder"
            raise InputError(f"models {other.spec} and {model.spec} would both be called {same}: {REMEDY}")


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Who made these numbers: command, time, program version and commit, Python, platform, main libraries."""
    here = Path(__file__).resolve().parents[2]
    commit = None
    if (here / ".git").exists():
        git = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = git.stdout.strip() or None
    return {
        "command": [redacted(word) for word in command],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "evaluator": __version__,
        "commit": commit,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": {name: version(name) for name in ("polars", "numpy")},
    }


def record(
    spec: RunSpec, tasks: Sequence[LoadedTask], models: Sequence[PreparedModel], attempt: Mapping[str, Any] | None = None
) -> Run:
    """Open the run folder and write down what is asked, refusing what contradicts what it holds; `attempt`: by whom."""
    attempt = attempt or provenance(spec.command)
    days = [asdict(model.spec.day) for model in models if model.spec.day]
    run = Run.create_or_open(spec.out, protocol=spec.protocol, provenance=attempt, date=days[0] if days else None)
    with run.locked():
        run.extend(
            tasks={loaded.task.name: task_entry(loaded.task, loaded.samples) for loaded in tasks},
            models={model.name: model.entry for model in models},
        )
        for model in models:
            for task, heads in model.heads.items():
                run.add_table(task, heads, model.tables[task])
            run.add_new_failures([(model.name, *pair) for pair in model.refused], "unaskable")
        run.add_attempt(attempt)
    for loaded in tasks:
        for file, how in loaded.samples.facts.get("read_as", {}).items():
            logs.line(f"{loaded.task.name}: {read_how(file, how)}", run=run.path.name)
    for doubt in doubts(run.record, [loaded.task.name for loaded in tasks], [model.name for model in models]):
        warnings.warn(doubt, stacklevel=2)
    return run
