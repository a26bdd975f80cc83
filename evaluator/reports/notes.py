"""What every reader of a run's numbers must know, read from run.json: shown in the first lines of every report.

A fact is recorded as data in the entry of its model or task when it becomes known, and told here in a sentence that begins
with the model's or task's name. A field that is missing (an older run, say) has nothing to tell. To tell a new kind of fact,
add a function of (name, entry) to MODEL_NOTES or TASK_NOTES where it concerns a whole model or task, else to MODEL_DETAILS or
TASK_DETAILS. Limits come first: they concern both.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluator.store.record import arithmetic

Entry = Mapping[str, Any]
Notes = Callable[[str, Entry], Iterator[str]]

SHOWN = 5
"""Names of a list that are written out."""

MUCH = 0.01
"""Share of a task's text tokens that may be unknown before its scores are doubtful."""


ALIKE = 4
"""Places of equal notes that are named."""

FEW = 2
"""Details of one kind that are told in full among the other notes."""


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What is known of a run, a sentence each: `main` concerns whole models and tasks, `details` are by kind."""

    main: tuple[str, ...]
    details: Mapping[str, tuple[str, ...]]

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is main; of details that are many of a kind their number and the first."""
        made = list(self.main)
        for kind, notes in self.details.items():
            made += notes if len(notes) <= FEW else [f"{len(notes)} notes on {kind}; the first: {notes[0]}"]
        return tuple(made)


def collect_notes(record: Mapping[str, Any]) -> RunNotes:
    """The notes of a run; `record` is run.json. What was not asked comes first."""
    models, tasks = record.get("models", {}), record.get("tasks", {})
    facts = [*_facts(MODEL_NOTES, models), *_facts(TASK_NOTES, tasks)]
    details = {
        **{kind: tuple(_facts([tell], models)) for kind, tell in MODEL_DETAILS.items()},
        **{kind: tuple(_facts([tell], tasks)) for kind, tell in TASK_DETAILS.items()},
        "planned times": tuple(plan_notes(record)),
    }
    main = grouped([*limit_notes(record), *choice_notes(record), *dtype_notes(record), *facts])
    return RunNotes(main, {kind: notes for kind, notes in details.items() if notes})


def run_notes(record: Mapping[str, Any]) -> tuple[str, ...]:
    """All notes of a run, the details last."""
    found = collect_notes(record)
    return (*found.main, *(note for notes in found.details.values() for note in notes))


def _facts(kinds: Sequence[Notes], entries: Mapping[str, Entry]) -> Iterator[str]:
    yield from (note for kind in kinds for name, entry in entries.items() for note in kind(name, entry))


def grouped(notes: Sequence[str]) -> tuple[str, ...]:
    """Notes of the form PLACE: TEXT with one line for all places that have the same text, in the order given."""
    places: dict[str, list[str]] = {}
    for note in notes:
        place, colon, text = note.partition(": ")
        places.setdefault(text if colon else note, []).append(place if colon else "")
    return tuple(f"{_listed(found)}: {text}" if any(found) else text for text, found in places.items())


def _listed(places: Sequence[str]) -> str:
    every = list(dict.fromkeys(places))
    more = len(every) - ALIKE
    return "; ".join(every[:ALIKE]) + (f" and {more} more" if more > 0 else "")


def plan_notes(record: Mapping[str, Any]) -> Iterator[str]:
    """`plans`: what sweeps were planned to take, and what they took (see `evaluator.sweep.planning.estimate`)."""
    for plan in record.get("plans", ()):
        basis = f"speeds measured on {plan['basis'][:10]}" if plan["basis"] else "speeds from data sheets"
        planned = f"the sweep of {plan['time'][:10]} was planned to take {_long(plan['seconds'])} ({basis})"
        if plan["took"] is None:
            yield f"{planned} and was interrupted."
            continue
        ended = "" if plan["whole"] else ", with some models unfinished"
        cost = ""
        if plan["price"] is not None:
            hours = plan["devices"] * plan["price"] / 3600
            cost = (
                f"; cost {hours * plan['took']:.2f}, planned {hours * plan['seconds']:.2f} at {plan['price']:g} a device-hour"
            )
        yield f"{planned} and took {_long(plan['took'])}{ended}{cost}."


def _long(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def limit_notes(record: Mapping[str, Any]) -> Iterator[str]:
    """Tasks of which models were asked a part only, or different parts. A limit that holds all samples cuts nothing."""
    for task, entry in record.get("tasks", {}).items():
        whole = entry.get("samples", 0)
        numbers: dict[str, list[str]] = {}
        for name, model in record.get("models", {}).items():
            if task in model.get("heads_used", {}) or task in model.get("tasks", ()):
                numbers.setdefault(_number(model, task, whole), []).append(name)
        if len(numbers) > 1:
            parts = "; ".join(f"{number}: {_names(names)}" for number, names in numbers.items())
            yield f"{task}: models use different numbers of its {whole:,} samples; compare them with care: {parts}."
        elif not numbers.keys() <= {ALL, UNRECORDED}:
            (number,) = numbers
            yield f"{task}: only {number} of its {whole:,} samples are used, spread over its groups."


def choice_notes(record: Mapping[str, Any]) -> Iterator[str]:
    """Tasks that weren't among those of every model."""
    scored = {name: entry for name, entry in record.get("models", {}).items() if "heads_used" in entry}
    for task in record.get("tasks", {}):
        known = [name for name, entry in scored.items() if task in entry["heads_used"]]
        others = [n for n, entry in scored.items() if task not in entry["heads_used"] and task not in entry.get("unasked", {})]
        if known and others:
            yield f"{task}: not requested for {_names(others)}."


def dtype_notes(record: Mapping[str, Any]) -> Iterator[str]:
    """Models that weren't computed in the same dtype; what a server computes in isn't known."""
    kinds: dict[str, list[str]] = {}
    for name, entry in record.get("models", {}).items():
        if (kind := arithmetic(entry)) not in (None, "served"):
            kinds.setdefault(kind, []).append(name)
    if len(kinds) > 1:
        parts = "; ".join(f"{kind}: {_names(names)}" for kind, names in kinds.items())
        yield f"models differ in dtype; compare them with care: {parts}."


ALL, UNRECORDED = "all", "not recorded (an older version)"


def _number(model: Entry, task: str, whole: int) -> str:
    """How many samples a model was asked, in words; scores that were imported are of all."""
    if model.get("imported"):
        return ALL
    counts = model.get("asked", {}).get(task)
    if counts is None:
        return UNRECORDED
    if counts["limit"] is None or counts["limit"] >= whole:
        return ALL
    return f"{counts['limit']:,} (limit, seed {counts['seed']})"


def _names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def unasked_notes(name: str, entry: Entry) -> Iterator[str]:
    """`unasked`: task → why it can't ask the model."""
    for task, reason in entry.get("unasked", {}).items():
        yield f"{name}: {task} was skipped: {reason}."


def _skipped(name: str, entry: Entry) -> Iterator[str]:
    """`asked`: task → also how many samples can't be asked, and why."""
    for task, counts in entry.get("asked", {}).items():
        if skipped := counts.get("skipped"):
            samples = f"{skipped:,} of {counts['samples']:,} samples of {task}"
            yield f"{name}: {samples} cannot be scored and are skipped; the first: {counts['reason']}."


def given_notes(name: str, entry: Entry) -> Iterator[str]:
    """`parts`: what was answered with nothing in answers that were given (a translation that was refused)."""
    for parts in entry.get("parts", {}).values():
        yield from (f"{name}: {line}." for part in parts.values() for line in part.get("left_out", ()))


def _unverified(name: str, entry: Entry) -> Iterator[str]:
    """`verified` is false where the comparison with the oracle was left out on demand."""
    if entry.get("verified") is False:
        yield f"{name}: its engine ({entry.get('engine')}) was not compared with transformers (--no-verify)."


def _same_as(name: str, entry: Entry) -> Iterator[str]:
    """`same_as` is the name that this very model (equal fingerprints) had in the run before."""
    if twin := entry.get("same_as"):
        yield f"{name}: the same model as {twin}, with the same answers."


def _approximate(name: str, entry: Entry) -> Iterator[str]:
    arithmetic = {
        "int8": "int8 arithmetic is an approximation",
        "bf16x2": f"float32 multiplied as sums of bfloat16 numbers (bf16x2) by the {entry.get('engine')} engine",
    }
    if reason := arithmetic.get(entry.get("dtype", "")):
        verified = entry.get("verified")
        yield f"{name}: {reason}" + (f"; {verified}." if isinstance(verified, str) else ".")
    if quantized := entry.get("details", {}).get("quantization"):
        yield f"{name}: its weights were quantized to {quantized} when they were loaded, an approximation."


def _padding(name: str, entry: Entry) -> Iterator[str]:
    """`engine_details.padding`: head → which rows could share a batch, where a row's numbers depend on the others."""
    for head, found in entry.get("engine_details", {}).get("padding", {}).items():
        moved = f" (log P changes by up to {found['difference']:.2g})" if found["difference"] else ""
        done = (
            "only rows of equal length were computed together" if found["mates"] == "equal" else "each row was computed alone"
        )
        on = "padding" if found["mates"] == "equal" else "the other rows of a batch"
        yield f"{name}: its {head} output {'depends' if moved else 'can depend'} on {on}{moved}, so {done}."


def _adapted(name: str, entry: Entry) -> Iterator[str]:
    if adapter := entry.get("adapter"):
        base, added = (adapter[part].removeprefix("sha256:")[:12] for part in ("base_revision", "revision"))
        into = "the weights beside it" if adapter["base"] == entry.get("spec") else adapter["base"]
        yield f"{name}: a {adapter['kind']} adapter ({added}) was merged into {into} ({base})."


def _wrong_rows(name: str, entry: Entry) -> Iterator[str]:
    if wrong := entry.get("failures", ()):
        where, reason = wrong[0]
        first = "" if len(wrong) == 1 else "; the first"
        yield f"{name}: {len(wrong):,} {'row' if len(wrong) == 1 else 'rows'} of its data skipped{first}: {where}: {reason}."


def _several_devices(name: str, entry: Entry) -> Iterator[str]:
    """Sizes that differ between attempts are all named: their numbers agree within the dtype's tolerance only."""
    wide: dict[str, None] = {}
    for start in entry.get("starts", ()):
        placed = start.get("placement", {})
        if placed.get("devices", 1) > 1:
            sizes = ("tensor_parallel", "pipeline_parallel", "spread")
            how = ", ".join(f"{key.replace('_', ' ')} {placed[key]}" for key in sizes if placed.get(key, 1) > 1)
            machines = f" on {placed['nodes']} machines" if placed.get("nodes", 1) > 1 else ""
            wide[f"{placed['devices']} devices{machines} ({how})"] = None
    if wide:
        yield f"{name}: scored by replicas of {' and '.join(wide)}."


def _unknown_text(name: str, entry: Entry) -> Iterator[str]:
    """`text_tokens` counts, for each task, what the tokenizer doesn't know: see `evaluator.scoring.coverage`. Of a task with
    several languages those are told in which it is much."""
    for task, counts in entry.get("text_tokens", {}).items():
        languages = counts.get("languages", {})
        parts = {f"{task} in {language}": part for language, part in languages.items() if _much_unknown(part)}
        for what, part in parts.items() if languages else [(task, counts)]:
            yield from _unknown_tokens(name, what, part)


def _little_unknown_text(name: str, entry: Entry) -> Iterator[str]:
    few = {task: counts for task, counts in entry.get("text_tokens", {}).items() if not _any_unknown(counts)}
    return _unknown_text(name, {"text_tokens": few})


def _much_unknown_text(name: str, entry: Entry) -> Iterator[str]:
    return _doubtful_texts(name, entry, entry.get("text_tokens", ()))


def _unknown_tokens(name: str, what: str, counts: Mapping[str, Any]) -> Iterator[str]:
    kinds = {"unknown": "unknown to its tokenizer", "byte_pieces": "bytes of characters without a token"}
    parts = [
        f"{counts[kind]:,} are {meant} ({100 * counts[f'{kind}_share']:.3g}%)" for kind, meant in kinds.items() if counts[kind]
    ]
    if parts:
        alike = f"; {counts['alike']:,} requests have the same token ids as another one" if counts["alike"] else ""
        little = ", so its scores there are unreliable" if _much_unknown(counts) else ""
        yield f"{name}: of the {counts['tokens']:,} text tokens of {what}, {' and '.join(parts)}{alike}{little}."


def _much_unknown(counts: Mapping[str, Any]) -> bool:
    return bool(counts["unknown_share"] + counts["byte_pieces_share"] > MUCH)


def _any_unknown(counts: Mapping[str, Any]) -> bool:
    """Whether much of the task is unknown, or of one of its languages."""
    return any(map(_much_unknown, [counts, *counts.get("languages", {}).values()]))


def _read_as(name: str, entry: Entry) -> Iterator[str]:
    """`facts.read_as`: how a file of the user's was read, told where that isn't the usual way."""
    for file, how in entry.get("facts", {}).get("read_as", {}).items():
        if how != {"encoding": "UTF-8", "delimiter": ","}:
            yield f"{name}: {read_how(file, how)}."


def read_how(file: str, how: Mapping[str, str]) -> str:
    """How a file was read, an entry of `facts.read_as`, in words."""
    between = {",": "commas", "\t": "tabs", ";": "semicolons"}[how["delimiter"]]
    return f"{file} was read as {how['encoding']} with {between} between its fields"


def _normal_forms(name: str, entry: Entry) -> Iterator[str]:
    """`normal_forms` counts the samples with letters beyond ASCII that are in NFC and that aren't."""
    found = entry.get("normal_forms", {})
    other, nfc = found.get("other", 0), found.get("nfc", 0)
    if other and nfc:
        yield (
            f"{name}: of the samples with letters beyond ASCII, {other:,} are not in Unicode's normal form NFC (an é "
            f"is two characters) and {nfc:,} are. A model sees different letters: normalise the file before "
            "comparing scores."
        )
    elif other:
        yield (
            f"{name}: all samples with letters beyond ASCII ({other:,}) are not in Unicode's normal form NFC (an é "
            "is two characters); most training texts are."
        )


def _without_beginning(name: str, entry: Entry) -> Iterator[str]:
    """`facts.languages` counts, by language, the pairs of texts whose first words differ."""
    counts = {language: c["without_beginning"] for language, c in entry.get("facts", {}).get("languages", {}).items()}
    if total := sum(counts.values()):
        most = max(counts, key=lambda language: counts[language])
        yield (
            f"{name}: {total:,} of the pairs have no common prefix (most in {most}, {counts[most]:,}): a generative "
            "model predicts their first token from BOS, or from its end-of-text token if it has no BOS."
        )


def doubts(record: Mapping[str, Any], tasks: Collection[str], models: Collection[str]) -> tuple[str, ...]:
    """The notes that make scores of these tasks and models doubtful: for stderr, before anything is scored."""
    found_doubts = [note for name in models for note in _doubtful_texts(name, record["models"][name], tasks)]
    return grouped([*found_doubts, *(note for name in tasks for note in _normal_forms(name, record["tasks"][name]))])


def _doubtful_texts(name: str, entry: Entry, tasks: Collection[str]) -> Iterator[str]:
    much = {task: c for task, c in entry.get("text_tokens", {}).items() if task in tasks and _any_unknown(c)}
    return _unknown_text(name, {"text_tokens": much})


def _chats(name: str, entry: Entry) -> Iterator[str]:
    """`chats`: what a model's answers in words took, who gave them, and whether they would be given again."""
    facts = entry.get("chats", {})
    if not facts.get("replies"):
        return
    served, dates = facts.get("served", {}), facts.get("dates", [])
    tokens = (
        f"{facts['replies']:,} answers used {facts['prompt_tokens']:,} prompt tokens and {facts['answer_tokens']:,} "
        "completion tokens"
    )
    when = f", generated from {dates[0]} to {dates[1]}" if dates else ""
    by = f" by {_counted(served)}" if served else ""
    cost = f" (${facts['dollars']:,.2f} at the prices given)" if "dollars" in facts else ""
    yield f"{name}: its {tokens}{cost}{when}{by}."
    if uncounted := facts.get("uncounted"):
        yield f"{name}: the server did not report the usage of {uncounted:,} of these answers: the true totals are higher."
    if len(served) > 1:
        yield f"{name}: the server reported more than one model: {_counted(served)}."
    if len(systems := facts.get("system", {})) > 1:
        yield f"{name}: the server's system fingerprint changed during the run: {_counted(systems)}."
    if facts.get("repeatable") is False:
        yield (
            f"{name}: its engine ({entry.get('engine')}) is not deterministic, even at temperature 0; this run keeps "
            "its answers."
        )


def _decoding(name: str, entry: Entry) -> Iterator[str]:
    """`decoding`: what of the model's generation_config.json was applied to its answers in words, and what wasn't."""
    decoding = entry.get("decoding", {})
    if applied := decoding.get("applied"):
        yield f"{name}: its generation_config.json was applied to generated answers: {_settings(applied)}."
    elif before := decoding.get("before"):
        ignored = _settings({key: decoding["ignored"][key] for key in before})
        yield f"{name}: its generation_config.json sets {ignored}, which was not applied to generated answers."


def _settings(values: Mapping[str, Any]) -> str:
    shown = [f"{key} {json.dumps(value)}" for key, value in values.items()]
    return ", ".join(one if len(one) <= 60 else f"{one[:60]}…" for one in shown)


def _omitted(name: str, entry: Entry) -> Iterator[str]:
    """`details.omit`: fields of a chat that its server was not sent."""
    if omitted := entry.get("details", {}).get("omit"):
        fields = " and ".join(sorted(part.strip() for part in str(omitted).split(",") if part.strip()))
        yield f"{name}: its server was not sent {fields} (omit): the server's default applied, whatever the task's name says."


def _template(name: str, entry: Entry) -> Iterator[str]:
    """`date`: what its chat template wrote as today's; `details.thinking`: how it was asked to think."""
    if day := entry.get("date"):
        yield f"{name}: its chat template inserts the current date into every prompt: {day} in this run."
    if thinking := entry.get("details", {}).get("thinking"):
        yield f"{name}: run with --thinking {thinking}."


def _condition(name: str, entry: Entry) -> Iterator[str]:
    """`condition`: the system prompt under which a model was asked."""
    condition = entry.get("condition")
    if not condition:
        return
    system = condition["system"]
    if system is None:
        yield f"{name}: no system prompt was sent; its chat template may add one."
    else:
        shown = system if len(system) <= 200 else f"{system[:200]}…"
        yield f"{name}: asked with the system prompt {shown!r}."


def _counted(counts: Mapping[str, int]) -> str:
    return _names([f"{name} ({count:,})" for name, count in counts.items()]) if len(counts) > 1 else next(iter(counts))


def _pickled(name: str, entry: Entry) -> Iterator[str]:
    """`pickled`: true where the weights came from pickled files."""
    if entry.get("pickled"):
        yield f"{name}: its weights are pickled files, which was allowed explicitly."


def _own_code(name: str, entry: Entry) -> Iterator[str]:
    """`code`: the programs of a model's own repository that were run for it."""
    if code := entry.get("code"):
        files = _names(code["files"])
        yield f"{name}: runs code of its own repository ({files}, {code['revision'][:19]}…), which was allowed explicitly."


def _file_tokens(name: str, entry: Entry) -> Iterator[str]:
    """`tokenizer`: that tokenizer.json is used in place of transformers' class, and whether that class makes other tokens."""
    known = entry.get("tokenizer", {"differ": False})
    if known["differ"] is not False:
        made = f"transformers' {known['instead_of']}"
        why = f" and differ from those of {made}" if known["differ"] else f": {made} does not load it"
        yield f"{name}: its tokens come from its tokenizer.json{why}."


MODEL_NOTES: tuple[Notes, ...] = (
    unasked_notes,
    _skipped,
    given_notes,
    _unverified,
    _approximate,
    _much_unknown_text,
    _same_as,
    _pickled,
    _own_code,
    _file_tokens,
    _chats,
    _omitted,
    _decoding,
    _template,
)
TASK_NOTES: tuple[Notes, ...] = (_read_as, _wrong_rows, _normal_forms)
MODEL_DETAILS: Mapping[str, Notes] = {
    "adapters": _adapted,
    "system prompts": _condition,
    "text tokens unknown to the tokenizer": _little_unknown_text,
    "rows that could not share a batch": _padding,
    "replicas on several devices": _several_devices,
}
TASK_DETAILS: Mapping[str, Notes] = {"pairs without a common prefix": _without_beginning}
