"""A run folder: its specification, all answers, and scores.

    RUN/run.json                                   the specification, written first
    RUN/logprobs/MODEL-FINGERPRINT/KIND/part-*     answers, keyed by request id
    RUN/journal/MODEL-FINGERPRINT.jsonl            paid answers of chunks that are not yet stored, one per line
    RUN/samples/TASK.parquet                       sample × template → request id
    RUN/imported/TASK/part-*                       imported scores
    RUN/failures/part-*                            failures
    RUN/timings/part-*                             one row per chunk; parts are merged from time to time
    RUN/tables/*                                   derived, can be deleted

A request is done if its id is among the answers. There is no other state, so batch size, `--limit` and the number of workers
may differ between attempts. A model's entry has the samples that it was scored on (`asked`, see `evaluator.tasks.limit`):
answers that other samples share with them do not count.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import polars as pl

from evaluator.store import imported
from evaluator.store.answers import ANSWERS, CHAT, REPLIES
from evaluator.store.files import (
    merge_parts,
    parquet_bytes,
    read_json,
    read_parts,
    read_whole,
    remove,
    write_bytes,
    write_json,
    write_parquet,
    write_part,
)
from evaluator.store.names import folder_name, plain_name
from evaluator.store.record import Entry, same_model, with_model, with_task
from evaluator.store.remote import mirror_of, shown
from evaluator.store.sample_counts import limited_rows
from evaluator.store.shape import mistakes
from evaluator.vocabulary import Protocol_
from evaluator_serving.errors import InputError, NotNowError
from evaluator_serving.locks import TakenError, held, is_held
from evaluator_serving.secrets import redacted

FORMAT = 1
STARTS_KEPT = 100
"""Starts of replicas that a model's entry tells of."""

Kind = Literal["unaskable", "poisonous", "retryable"]
"""What becomes of a failure when the same command is given again.

unaskable: the request can't be asked of the model, or no task can ask it: refused again before anything is loaded.
poisonous: it was tried alone and killed its worker, or had no finite answer, every time: asked again with --retry only.
retryable: an engine error, no memory, a lost worker, a download: tried again.
"""
FAILURES: dict[str, pl.DataType] = {
    "model": pl.String(),
    "request": pl.String(),
    "reason": pl.String(),
    "kind": pl.String(),
}
"""One row per request that failed, or with an empty request a model that failed as a whole. Older versions told no kinds."""
TIMINGS: dict[str, pl.DataType] = {
    "model": pl.String(),
    "worker": pl.String(),
    "finished": pl.Float64(),
    "requests": pl.Int64(),
    "rows": pl.Int64(),
    "tokens": pl.Int64(),
    "seconds": pl.Float64(),
    "host_memory": pl.Int64(),
    "device_memory": pl.Int64(),
}
"""Finished is a Unix time in seconds, memory the peak so far in bytes (0 where there is no such device)."""
MANY_PARTS = 128
"""So many parts of timings, or small parts of a model's answers, are made one while a run goes on."""
SMALL_PART = 1 << 20
"""Bytes of a part of answers that is small."""
PARTS_APART = 8
"""So many parts of a finished model's answers are made one."""


_PLACE = ("language", "template", "sample", "group")
_SAMPLES = {**dict.fromkeys(_PLACE), "request": pl.String(), "heads": pl.String()}
_IMPORTED = {**dict.fromkeys(_PLACE), "model": pl.String(), "score": pl.Float64()}
"""Columns of tables that can't be done without, and those of their types that matter here."""


def _failures(rows: Sequence[tuple[str, str, str]], kind: Kind) -> pl.DataFrame:
    entries = [(model, request, redacted(reason), kind) for model, request, reason in rows]
    return pl.DataFrame(entries, schema=FAILURES, orient="row")


def _last(failures: pl.DataFrame) -> pl.DataFrame:
    """The last failure of each request; for models as a whole, every reason once."""
    whole = pl.when(pl.col("request") == "").then("reason").alias("whole")
    columns = ["model", "request", "whole"]
    return failures.with_columns(whole).unique(columns, keep="last", maintain_order=True).drop("whole")


def heads_key(heads: Iterable[str]) -> str:
    """The heads of a table as one string."""
    return "+".join(sorted(heads))


def answers_name(model: str, entry: Entry) -> str:
    """The folder name of a model's answers: its own, or that of the same model's earlier name."""
    return str(entry.get("answers", f"{folder_name(model)}-{entry['fingerprint']}"))


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder. Methods return the present state, those of a `snapshot` that of its run.json and tables of samples."""

    path: Path
    _read: dict[Any, Any] | None = field(default=None, repr=False, compare=False)

    # --- opening -------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Self:
        """An existing run. Raises InputError if there is none, or it was written by a newer format."""
        run = cls(path)
        if not (path / "run.json").is_file():
            raise InputError(f"{run.shown} is not a run (no run.json in it): give the folder that `evaluator run --out` wrote")
        found = run.record.get("format")
        if found != FORMAT:
            raise InputError(
                f"{run.shown}/run.json has format {found}, but this program reads {FORMAT}: use the version that wrote it"
            )
        if (wrong := next(mistakes(run.record), None)) is not None:
            raise InputError(f"{run.shown}/run.json has an invalid {wrong[:200]!r}: restore it or use another folder")
        return run

    @classmethod
    def create_or_open(
        cls, path: Path, *, protocol: Protocol_, provenance: Mapping[str, Any], date: Mapping[str, Any] | None = None
    ) -> Self:
        """The run at `path`, created if there is none, with `date` recorded as the date in prompts.

        Raises InputError if the folder has other content, or a run with another protocol.
        """
        if (path / "run.json").exists():
            run = cls.open(path)
            if run.protocol != protocol:
                raise InputError(
                    f"{run.shown} was made with --protocol {run.protocol}, now asked {protocol}: use another --out folder"
                )
            return run
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} exists and is not a run: use another --out folder")
        write_json(
            path / "run.json",
            {
                **{"format": FORMAT, "protocol": protocol, "attempts": [provenance]},
                **({"date": dict(date)} if date else {}),
                **{"tasks": {}, "models": {}},
            },
        )
        return cls(path)

    def snapshot(self) -> Self:
        """The run for reading many models: run.json and tables of samples are read once, when they are first needed."""
        return self if self._read is not None else replace(self, _read={})

    def _once(self, what: Any, read: Callable[[], Any]) -> Any:
        if self._read is None:
            return read()
        if what not in self._read:
            self._read[what] = read()
        return self._read[what]

    @property
    def shown(self) -> str:
        """The run in messages: the folder's path, or its URL."""
        return shown(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for writing. Raises NotNowError if another process on this machine writes to it.

        A run on object storage is locked for all machines, and up to date when the body begins.
        """
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(held(self.path / ".lock", wait=False))
            except TakenError as taken:
                raise NotNowError(
                    f"{self.shown} is being written by {taken.holder}: wait for it or use another --out"
                ) from None
            if mirror := mirror_of(self.path):
                lock.enter_context(mirror.leased())
            yield

    @property
    def busy(self) -> bool:
        """Whether a process holds the run for writing, on this machine or, for object storage, anywhere. Writes nothing."""
        mirror = mirror_of(self.path)
        return mirror.busy if mirror else is_held(self.path / ".lock")

    # --- what was asked ------------------------------------------------------------------------------------------

    @property
    def record(self) -> dict[str, Any]:
        """The content of run.json."""
        record: dict[str, Any] = self._once("run.json", self._read_record)
        return record

    def _read_record(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = read_json(self.path / "run.json")
        except (OSError, ValueError) as error:
            raise InputError(f"{self.shown}/run.json can't be read ({error}): restore it or use another folder") from error
        if not isinstance(record, dict) or "format" not in record:
            raise InputError(f"{self.shown}/run.json is not the record of a run: restore it or use another folder")
        return record

    @property
    def protocol(self) -> Protocol_:
        """The scoring protocol of the run."""
        protocol: Protocol_ = self.record["protocol"]
        return protocol

    @property
    def tasks(self) -> list[str]:
        """Task names in the order in which they were added."""
        return list(self.record["tasks"])

    @property
    def models(self) -> list[str]:
        """Model names in the order in which they were added."""
        return list(self.record["models"])

    @property
    def conditions(self) -> dict[str, str]:
        """Model → name of its system prompt, for models with one."""
        return {name: entry["condition"]["name"] for name, entry in self.record["models"].items() if entry.get("condition")}

    def asked(self, task: str) -> list[str]:
        """Names of the models that are scored on a task, answered or not."""
        return [name for name, entry in self.record["models"].items() if task in entry.get("heads_used", {})]

    def extend(self, *, tasks: Mapping[str, Entry] | None = None, models: Mapping[str, Entry] | None = None) -> None:
        """Add tasks and models to the specification: all of them or, if any is refused, none.

        Raises InputError for a task whose data or definition, or a model whose weights, dtype, engine or versions, differ from
        those of the run's scores. A model with the fingerprint of another one in the run shares its answers.
        """
        record = self.record
        for name, entry in (tasks or {}).items():
            record["tasks"][name] = with_task(record["tasks"].get(name), entry, name, self.shown)
        for name, entry in (models or {}).items():
            known = record["models"].get(name)
            answered = known is not None and "fingerprint" in known and bool(self.done(name))
            made = with_model(known, entry, name, self.shown, answered=answered)
            twin = same_model(record["models"], made.get("fingerprint"))
            if twin not in (None, name) and (known or {}).get("fingerprint") != made.get("fingerprint"):
                made |= {"same_as": twin, "answers": answers_name(twin, record["models"][twin])}
            record["models"][name] = made
        write_json(self.path / "run.json", record)

    def add_task(self, name: str, entry: Entry) -> None:
        """Record a task and its data. Raises InputError if its data or definition differ from those in the run."""
        self.extend(tasks={name: entry})

    def add_attempt(self, provenance: Mapping[str, Any]) -> None:
        """Record a further command on this run (the first one is recorded at creation)."""
        record = self.record
        if provenance not in record["attempts"]:
            write_json(self.path / "run.json", record | {"attempts": [*record["attempts"], provenance]})

    def add_plan(self, plan: Mapping[str, Any]) -> None:
        """Record a sweep's estimate or, later with the same `time`, its actual times."""
        record = self.record
        others = [known for known in record.get("plans", ()) if known["time"] != plan["time"]]
        write_json(self.path / "run.json", record | {"plans": [*others, dict(plan)]})

    def update_model(self, name: str, **fields: Any) -> None:
        """Add facts on a model that become known later (such as its verification)."""
        record = self.record
        record["models"][name].update(fields)
        write_json(self.path / "run.json", record)

    def add_start(self, name: str, start: Mapping[str, Any]) -> None:
        """Record the start of a replica of a model: place, devices and duration. Only the last ones are kept."""
        known = self.record["models"][name].get("starts", [])
        self.update_model(name, starts=[*known, dict(start)][-STARTS_KEPT:])

    # --- samples and answers -------------------------------------------------------------------------------------

    def add_table(self, task: str, heads: Iterable[str], table: pl.DataFrame) -> None:
        """Store the requests of a task's samples for models with these heads.

        Rows of the same samples are replaced, those of other samples are kept.
        """
        path = self.path / "samples" / f"{folder_name(task)}.parquet"
        key = heads_key(heads)
        table = table.with_columns(pl.lit(key).alias("heads"))
        if path.exists():
            known = read_whole(path, "remove it and run the same command again", _SAMPLES)
            if known.filter(heads=key).select(pl.col(c) for c in table.columns if c in known.columns).equals(table):
                return
            old = (pl.col("heads") == key) & pl.col("sample").is_in(table["sample"].unique().implode())
            table = pl.concat([known.filter(~old), table], how="diagonal_relaxed")
        write_parquet(path, table)

    def table(self, task: str, heads: Iterable[str]) -> pl.DataFrame:
        """The requests of a task for models with these heads."""
        path, key = self.path / "samples" / f"{folder_name(task)}.parquet", heads_key(heads)

        def read() -> pl.DataFrame:
            frame = read_whole(path, "run the same command again", _SAMPLES)
            return frame.filter(pl.col("heads") == key).drop("heads")

        found: pl.DataFrame = self._once((task, key), read)
        return found

    def requests(self, model: str) -> pl.DataFrame:
        """Ids of a model's requests, answered or not, each once (column `request`)."""
        entry = self.record["models"][model]
        tables = [self.asked_table(task, entry).select("request") for task in entry.get("heads_used", {})]
        return pl.concat([pl.DataFrame(schema={"request": pl.String}), *tables]).unique()

    def unanswered(self, task: str, models: Collection[str] | None = None) -> dict[str, tuple[int, int]]:
        """Model → (requests of this task without an answer or failure, all its requests), for all models or the given ones."""
        failed = self.failures()
        found = {}
        for name in self.asked(task):
            if models is not None and name not in models:
                continue
            requests = self.asked_table(task, self.record["models"][name]).select("request").unique()
            left = requests.join(self.answers(name), on="request", how="anti")
            left = left.join(failed.filter(model=name), on="request", how="anti")
            if left.height:
                found[name] = (left.height, requests.height)
        return found

    def asked_table(self, task: str, entry: Mapping[str, Any]) -> pl.DataFrame:
        """The requests of a task for the samples in this model's entry."""
        return limited_rows(self.table(task, entry["heads_used"][task]), entry, task)

    def answers_folder(self, model: str) -> Path:
        """The folder of a model's answers."""
        return self.path / "logprobs" / self._answers_name(model)

    def journal(self, model: str) -> Path:
        """The file of a model's paid answers until their chunk is stored."""
        return self.path.absolute() / "journal" / f"{self._answers_name(model)}.jsonl"

    def _answers_name(self, model: str) -> str:
        return plain_name(answers_name(model, self.record["models"][model]), self.shown)

    def add_answers(self, folder: Path, answers: Mapping[str, pl.DataFrame], *, durable: bool = True) -> None:
        """Store answers (see `frames_by_kind`), one part per request kind, each with a single fsync unless `durable`."""
        for kind, frame in answers.items():
            write_part(folder / kind, frame, durable=durable)

    def merge_answers(self, model: str, *, finished: bool = True) -> None:
        """Make one part of a model's answers of each kind, where they are many: its reports then read one file.

        Unless the model is `finished`, only of those that are small. Not on object storage, whose readers are told how many
        parts there are.
        """
        if mirror_of(self.path) is None:
            least, largest = (PARTS_APART, math.inf) if finished else (MANY_PARTS, SMALL_PART)
            for kind in self._kinds(model):
                schema = ANSWERS | REPLIES if kind.name == CHAT else ANSWERS
                merge_parts(kind, schema, least=least, largest=largest, key=["request", "candidate"])

    def answers(self, model: str) -> pl.DataFrame:
        """All answers of a model (columns ANSWERS, and REPLIES, null except for chats), each request once."""
        parts = [
            read_parts(kind, ANSWERS | REPLIES, absent={"thought": ""}) if kind.name == CHAT else read_parts(kind, ANSWERS)
            for kind in self._kinds(model)
        ]
        frame = pl.concat([pl.DataFrame(schema=ANSWERS | REPLIES), *parts], how="diagonal")
        return frame.unique(["request", "candidate"], keep="first", maintain_order=True)

    def _kinds(self, model: str) -> list[Path]:
        """The folders of a model's answers."""
        return [kind for kind in sorted(self.answers_folder(model).glob("*")) if kind.is_dir()]

    def reply_facts(self, model: str) -> dict[str, Any]:
        """Facts on a model's answers to chats; empty if it has none.

        `replies`, their `prompt_tokens` and `answer_tokens`, and the number without token counts (`uncounted`); how they ended
        (`finish` → number). For servers: `served` and `system`, the reported model names and fingerprints → number, and the
        first and last of the `dates`.
        """
        with_text = self.answers(model).filter(pl.col("text").is_not_null())
        if with_text.is_empty():
            return {}

        def counts(column: str) -> dict[str, int]:
            named = with_text.filter(pl.col(column) != "").group_by(column, maintain_order=True).len()
            return dict(sorted(named.iter_rows()))

        # What a server's filter took away before it was asked has no tokens.
        uncounted = (pl.col("date") != "") & (pl.col("prompt_tokens") == 0) & (pl.col("finish") != "filtered")
        dates = with_text.filter(pl.col("date") != "")["date"]
        return {
            "replies": with_text.height,
            **{name: int(with_text[name].sum()) for name in ("prompt_tokens", "answer_tokens")},
            "uncounted": with_text.filter(uncounted).height,
            **{name: counts(name) for name in ("finish", "served", "system")},
            "dates": [dates.min(), dates.max()] if len(dates) else [],
        }

    def answered(self, model: str) -> pl.DataFrame:
        """Ids of the requests with an answer, each once (column `request`). Unlike `done` it reads no log-probabilities."""
        schema = {"request": ANSWERS["request"]}
        parts = [read_parts(kind, schema) for kind in self._kinds(model)]
        return pl.concat([pl.DataFrame(schema=schema), *parts]).unique()

    def done(self, model: str) -> set[str]:
        """Ids of the requests that this model has answered."""
        return set(self.answers(model)["request"].unique().to_list())

    # --- failures and timings ------------------------------------------------------------------------------------

    def add_failures(self, rows: Sequence[tuple[str, str, str]], kind: Kind = "retryable") -> None:
        """Record (model, request id or empty, reason)."""
        write_part(self.path / "failures", _failures(rows, kind))

    def add_new_failures(self, rows: Sequence[tuple[str, str, str]], kind: Kind) -> None:
        """Record failures that are not recorded yet."""
        new = _failures(rows, kind)
        if new.height:
            new = new.join(self._recorded_failures(), on=list(FAILURES), how="anti", maintain_order="left")
        if new.height:
            write_part(self.path / "failures", new)

    def given_up(self, model: str) -> set[str]:
        """Ids of a model's requests that failed on every attempt; some may have been answered since."""
        return set(_last(self._recorded_failures().filter(model=model)).filter(kind="poisonous")["request"]) - {""}

    def _recorded_failures(self) -> pl.DataFrame:
        return read_parts(self.path / "failures", FAILURES, absent={"kind": "retryable"})

    def clear_model_failure(self, *models: str) -> None:
        """Remove failures of whole models (not of single requests) that have since been scored completely."""
        self._forget_failures(pl.col("model").is_in(models) & (pl.col("request") == ""))

    def _forget_failures(self, gone: pl.Expr) -> None:
        folder = self.path / "failures"
        frame = self._recorded_failures()
        rest = frame.filter(~gone)
        if rest.height < frame.height:
            before = list(folder.glob("part-*.parquet"))
            if rest.height:  # written first: a kill in between leaves rows twice, and those are shown once
                write_part(folder, rest)
            remove(*before)

    def failures(self) -> pl.DataFrame:
        """All current failures (columns FAILURES), without those whose request was answered later."""
        models = self.record["models"]
        missing = _failures(list(imported.failures(models)), "retryable")
        frame = _last(pl.concat([self._recorded_failures(), missing]))
        if frame.is_empty():
            return frame
        answered = [
            self.answers(m).select(pl.lit(m).alias("model"), "request").unique()
            for m in frame["model"].unique(maintain_order=True)
            if "fingerprint" in models.get(m, {})
        ]
        return frame.join(pl.concat(answered), on=["model", "request"], how="anti") if answered else frame

    def add_timings(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record what chunks took."""
        write_part(self.path / "timings", pl.DataFrame(rows, schema=TIMINGS), durable=False)

    def merge_timings(self) -> None:
        """Merge the timing files, of which a long run has thousands. Only for the holder of the lock."""
        merge_parts(self.path / "timings", TIMINGS, least=MANY_PARTS)

    def timings(self) -> pl.DataFrame:
        """Durations of all chunks, over all attempts."""
        return read_parts(self.path / "timings", TIMINGS).unique(maintain_order=True)

    # --- scores --------------------------------------------------------------------------------------------------

    def add_imported(
        self,
        task: str,
        entry: Entry,
        model: str,
        scores: pl.DataFrame,
        source: Any,
        *,
        part: str = "",
        failures: Sequence[str] = (),
        left_out: Sequence[str] = (),
        kind: str | None = None,
    ) -> None:
        """Add imported scores, or replace those of the same part (see `evaluator.store.imported`).

        `entry` is the task's in run.json; `scores` are per sample, without the columns model and task; `source` is the part's
        source (a sha256 or several facts), `failures` are missing scores that may come, `left_out` those that will not, `kind`
        is the model's heads (as in `heads_key`). Replacing a part with another source gives a warning.
        """
        known = self.record["models"].get(model)
        if known is not None and not known.get("imported"):
            raise InputError(f"{self.shown} already has a scored model called {model!r}: import into another --out folder")
        self.add_task(task, entry)
        content = parquet_bytes(scores.with_columns(pl.lit(model).alias("model")))
        folder = self.path / "imported" / folder_name(task)
        name = imported.part_file(folder_name(f"{model}-{part}" if part else model), content)
        write_bytes(folder / name, content)
        before = imported.sources(known or {}).get(part, source) if part else source
        if changed := imported.difference(before, source):
            warnings.warn(
                f"{self.shown}: {model}, {part} is replaced because its source file changed ({changed})", stacklevel=2
            )
        superseded = (known or {}).get("parts", {}).get(task, {}).get(part, {}).get("file", name)
        record = self.record
        record["models"][model] = imported.with_part(known, model, task, part, name, source, failures, left_out, kind)
        write_json(self.path / "run.json", record)
        if superseded != name:
            remove(folder / superseded)
        if part:  # older versions kept these among all other failures
            mine = (pl.col("model") == model) & (pl.col("request") == "") & pl.col("reason").str.starts_with(f"{part}: ")
            self._forget_failures(mine)

    def imported_scores(self, task: str, model: str, entry: Mapping[str, Any]) -> list[pl.DataFrame]:
        """All parts of a model's imported scores of a task."""
        folder, remedy = self.path / "imported" / folder_name(task), f"import {model} again"
        names = [plain_name(name, self.shown) for name in imported.files(entry, task)]
        parts = [read_whole(folder / name, remedy, _IMPORTED) for name in names]
        whole = folder / f"part-{folder_name(model)}.parquet"
        needed = task in entry.get("tasks", []) and not parts
        return imported.combined(parts, read_whole(whole, remedy, _IMPORTED) if needed or whole.exists() else None)

    def write_table(self, name: str, frame: pl.DataFrame) -> Path:
        """Store a derived table under RUN/tables."""
        path = self.path / "tables" / f"{folder_name(name)}.parquet"
        write_parquet(path, frame)
        return path
