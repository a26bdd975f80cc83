"""Reference models beside a run's own: published ones, or those of other runs (`--published`, `--beside`).

References are measured with the report's options and shown; they are part of no test, no correlation and no count of what was
measured here. A value is compared only with references that were asked in the same way: the same data, the same kind of model,
the same templates, all samples. What is not compared is reported with the reason.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evaluator.datasets.registry import PUBLISHED, published_run, published_scores
from evaluator.reports.blocks import OVER_ALL, Block, TableRow, blocks, digits_for, number, with_interval
from evaluator.reports.overall import wholes
from evaluator.reports.report import Reference, Report, Section, measured
from evaluator.store.run import Run, heads_key
from evaluator.tasks.stored import same_definition, scores_of
from evaluator.vocabulary import Layout, MeasureOptions
from evaluator_serving.errors import InputError

_WORDS = {"causal": "generative", "seq2seq": "text-to-text", "pair": "next-sentence"}
SENTENCES = 4
"""Models whose place is told in sentences; of more the table says it."""
BY_NAME = 80
"""References that a table lists."""


@dataclass(frozen=True, slots=True)
class Source:
    """A run whose models are references; `label` is what they are called (`published`, the folder's name)."""

    run: Run
    label: str


def sources(published: bool, beside: Sequence[Path], than: Sequence[Path] = ()) -> tuple[Source, ...]:
    """The runs of references; `than` are the runs that they stand beside.

    Raises InputError where the published scores are not in the cache, and for a run that would stand beside itself.
    """
    made = [Source(Run.open(path), path.resolve().name) for path in beside]
    if published:
        if not (published_run() / "run.json").is_file():
            raise InputError("the published scores are not in the cache: run `evaluator data fetch published`")
        made.insert(0, Source(Run.open(published_run()), PUBLISHED))
    own = {path.resolve() for path in than}
    for source in made:
        if source.run.path.resolve() in own:
            option = "--published" if published and source is made[0] else f"--beside {source.run.shown}"
            raise InputError(f"{option} is the run itself: leave it out")
    labels = [source.label for source in made]
    return tuple(Source(s.run, s.label if labels.count(s.label) == 1 else s.run.shown) for s in made)


def beside(
    run: Run, section: Section, runs: Sequence[Source], options: MeasureOptions, names: Mapping[str, str] | None = None
) -> Section:
    """The section with what of these runs can stand beside it, and a warning for what can't.

    `names`: the run's models by name in the section, where the section calls them otherwise.
    """
    if not runs:
        return section
    reported = set(section.rows["model"].unique())
    called = names or {model: model for model in run.models if model in reported}
    notes: list[str] = []
    own: dict[str, str] = {}
    for model, shown in called.items():
        if why := why_partial(run, section.task, model):
            notes.append(f"{shown} is not compared with references: {why}")
        elif way := way_of(run, section.task, model, section.rows.filter(pl.col("model") == shown), options):
            own[shown] = way
    found = []
    for source in runs:
        if why := _unlike(run, source, section):
            notes.append(why)
            continue
        if caveat := _caveat(run, source, section.layout):
            notes.append(caveat)
        found.append(_rows(source, section, options, own, notes))
    rows = pl.concat(found) if found else None
    rows = rows if rows is not None and rows.height else None
    if (known := section.reference) is not None:  # of another run's models
        both = [each for each in (known.rows, rows) if each is not None]
        own, rows = {**known.own, **own}, pl.concat(both).unique(maintain_order=True) if both else None
    return replace(section, reference=Reference(own, rows), warnings=(*section.warnings, *notes))


def reference_scores(
    run: Run, task: str, scores: pl.DataFrame, layout: Layout, runs: Sequence[Source], options: MeasureOptions
) -> tuple[pl.DataFrame, list[str]]:
    """Per-sample scores, with `source`, of the references that were asked in the same way as the model of these scores.

    Also why those of other runs are not among them.
    """
    section = Section(task, pl.DataFrame(), layout, ())
    way = way_of(run, task, scores["model"][0], scores, options)
    frames, notes = [pl.DataFrame()], []
    for source in runs:
        if why := _unlike(run, source, section):
            notes.append(why)
            continue
        notes += [caveat] if (caveat := _caveat(run, source, layout)) else []
        found = scores_of(source.run, task)
        same = [
            model
            for (model,), part in found.partition_by("model", as_dict=True, maintain_order=True).items()
            if way_of(source.run, task, str(model), part, options) == way
        ]
        frames.append(found.filter(pl.col("model").is_in(same)).with_columns(source=pl.lit(source.label)))
    return pl.concat([frame for frame in frames if frame.height] or frames[:1], how="diagonal_relaxed"), notes


def with_references(report: Report, run: Run, runs: Sequence[Source]) -> Report:
    """The report with what of these runs can stand beside its sections."""
    return replace(report, sections=tuple(beside(run, section, runs, report.options) for section in report.sections))


def section_blocks(section: Section) -> list[Block]:
    """All tables of a section in reading order: the references' behind the first."""
    made, places_ = blocks(section), table(section)
    return made if places_ is None else [*made[:1], places_, *made[1:]]


def _unlike(run: Run, source: Source, section: Section) -> str | None:
    """Why a run's scores of a task can't stand beside these, a sentence; None if they can."""
    task = section.task
    if task not in source.run.tasks:
        return f"no {source.label} scores of {task}: they are of {', '.join(source.run.tasks)}"
    data, its_data = run.record["tasks"][task], source.run.record["tasks"][task]
    if data.get("sha256") != its_data.get("sha256") or not same_definition(task, data, its_data):
        return f"{source.label} scores of {task} are not compared: they are of another version of the data"
    if run.protocol != source.run.protocol and not section.layout.across_protocols:
        return f"{source.label} scores of {task} are not compared: protocol {source.run.protocol} against {run.protocol}"
    return None


def _caveat(run: Run, source: Source, layout: Layout) -> str | None:
    if run.protocol == source.run.protocol:
        return None
    both = f"{source.label} scores follow the protocol {source.run.protocol}, this run the protocol {run.protocol}"
    return f"{both}: {layout.across_protocols}"


def why_partial(run: Run, task: str, model: str) -> str | None:
    """Why a model's rates are not of all samples; None if they are."""
    entry, whole = run.record["models"][model], run.record["tasks"][task].get("samples", 0)
    counts = entry.get("asked", {}).get(task, {})
    if counts.get("limit") is not None and counts["limit"] < whole:
        return f"only {counts['limit']:,} of {whole:,} samples were scored (limit)"
    if left := run.unanswered(task, [model]).get(model):
        return f"{left[0]:,} of {left[1]:,} requests have no answer yet"
    return None


def way_of(run: Run, task: str, model: str, rows: pl.DataFrame, options: MeasureOptions) -> str:
    """How a model was asked, as text: its kind, a setting of the report that changes it, and its templates."""
    entry = run.record["models"][model]
    kind = entry.get("kinds", {}).get(task)
    if kind is None and task in entry.get("heads_used", {}):
        chosen = str(options.settings.get(task, ""))
        kind = heads_key(entry["heads_used"][task]) + (f", {chosen}" if chosen else "")
    if kind is None:
        scores = scores_of(run, task, [model])
        kind = heads_key(scores["head"].drop_nulls().unique()) if "head" in scores.columns else ""
    templates = rows.filter(~pl.col("template").is_in(OVER_ALL))["template"].drop_nulls().unique().sort()
    return f"{_spoken(kind)}; templates {', '.join(templates)}" if len(templates) else _spoken(kind)


def _spoken(kind: str) -> str:
    heads, comma, rest = kind.partition(",")
    return " and ".join(_WORDS.get(head, head) for head in heads.split("+")) + comma + rest


def _kind(way: str) -> str:
    return way.partition(";")[0]


def _rows(source: Source, section: Section, options: MeasureOptions, own: Mapping[str, str], notes: list[str]) -> pl.DataFrame:
    """The rows (columns TIDY, `source`, `way`) of the references that some model is compared with; notes on the others."""
    rows = measured(source.run, section.task, options).rows
    reported = set(rows["model"].unique())
    models = [model for model in source.run.models if model in reported]
    ways = {
        model: way_of(source.run, section.task, model, rows.filter(pl.col("model") == model), options)
        for model in models
        if why_partial(source.run, section.task, model) is None
    }
    if partial := len(models) - len(ways):
        notes.append(f"{partial} of {len(models)} {source.label} models are not compared: they were not scored on all samples")
    wanted = set(own.values())
    if own and (other := [way for way in ways.values() if way not in wanted]):
        kinds = "; ".join(f"{other.count(way)} {way.replace(';', ',')}" for way in dict.fromkeys(other))
        notes.append(
            f"{len(other)} of {len(models)} {source.label} models are not compared, because their settings differ: {kinds}"
        )
    for way in dict.fromkeys(own.values()):
        if way not in ways.values():
            names = ", ".join(name for name, its in own.items() if its == way)
            notes.append(f"{names}: no {source.label} model has the same settings ({way})")
    comparable = {model: way for model, way in ways.items() if way in wanted}
    return rows.filter(pl.col("model").is_in(comparable)).with_columns(
        source=pl.lit(source.label), way=pl.col("model").replace_strict(comparable, default=None, return_dtype=pl.String)
    )


def reference_called(scores: pl.DataFrame, name: str) -> pl.DataFrame | None:
    """Of `reference_scores` those of the first model called so, under its marked name; None where there is none."""
    found = pl.DataFrame() if scores.is_empty() else scores.filter(model=name)
    if found.is_empty():
        return None
    source = found["source"][0]
    return found.filter(source=source).with_columns(model=pl.lit(marked(name, source)))


@dataclass(frozen=True, slots=True)
class ReferenceRank:
    """Where a model's value lies among those of one source's references that were asked in the same way.

    Attributes:
        higher: how many of them are lower than the value.
        of: how many there are.
        nearest, nearest_value: the reference whose value is nearest.
    """

    model: str
    language: str
    template: str
    measure: str
    value: float
    source: str
    kind: str
    higher: int
    of: int
    nearest: str
    nearest_value: float


def reference_ranks(section: Section, measure: str | None = None) -> list[ReferenceRank]:
    """The places of every model's main value, or of this measure's; none without references."""
    reference = section.reference
    if reference is None or reference.rows is None:
        return []
    measure = measure or next((each.measure for each in (*section.layout.overview, *section.layout.by_language)), None)
    if measure is None:
        return []
    mine = wholes(section, measure).filter("overall").drop_nulls("value")
    made = []
    for row in mine.iter_rows(named=True):
        way = reference.own.get(row["model"])
        for label in reference.rows["source"].unique(maintain_order=True):
            others = among(section, measure, label).filter(way=way, language=row["language"], template=row["template"])
            if way is None or others.is_empty():
                continue
            far = [_distance(section.layout, value, row["value"]) for value in others["value"]]
            near = others.row(far.index(min(far)), named=True)
            higher = others.filter(pl.col("value") < row["value"]).height
            place = (row["model"], row["language"], row["template"], measure, row["value"], label, _kind(way))
            made.append(ReferenceRank(*place, higher, others.height, near["model"], near["value"]))
    return made


def among(section: Section, measure: str, source: str | None = None) -> pl.DataFrame:
    """The references' values of a measure that models are compared by: columns of `wholes`, `source`, `way`."""
    reference = section.reference
    if reference is None or reference.rows is None:
        return pl.DataFrame()
    rows = reference.rows if source is None else reference.rows.filter(source=source)
    found = [
        wholes(Section(section.task, part, section.layout, ()), measure).with_columns(source=pl.lit(label), way=pl.lit(way))
        for (label, way), part in rows.partition_by("source", "way", as_dict=True, maintain_order=True).items()
    ]
    return pl.concat(found).filter("overall").drop_nulls("value")


def _distance(layout: Layout, one: float, other: float) -> float:
    """How far two values are apart: as ratios where the layout's axes are logarithmic."""
    return abs(math.log(one / other)) if layout.log_axis and one > 0 and other > 0 else abs(one - other)


def marked(model: str, source: str) -> str:
    """A reference's name in tables and figures."""
    return f"{model} ({source})"


def sentences(section: Section) -> Iterator[str]:
    """The place of each model's main value, a sentence each where they are few."""
    found = reference_ranks(section)
    if len(found) > SENTENCES:
        yield f"The table “{_title(section, found[0].measure)}” has each model's rank among the references."
        return
    models_, languages = len({place.model for place in found}), len({place.language for place in found})
    digits = digits_for(max((abs(place.value) for place in found), default=None))
    for place in found:
        parts = [place.model if models_ > 1 else "", place.language if languages > 1 else ""]
        of = f" of {' in '.join(part for part in parts if part)}" if any(parts) else ""
        template = f"Template {place.template}: " if place.template and place.template not in OVER_ALL else ""
        models = f"{place.source} {place.kind} model{'s' if place.of > 1 else ''}"
        near = f"{place.nearest} ({number(place.nearest_value, digits)})"
        measure = section.layout.shown(place.measure)
        yield f"{template}{measure}{of} is higher than {place.higher} of {place.of} {models}; nearest: {near}."


def _title(section: Section, measure: str) -> str:
    return f"{section.task}: {section.layout.shown(measure)} beside references"


def table(section: Section) -> Block | None:
    """The main values of models and references, the highest first; references are marked. None without references."""
    found = reference_ranks(section)
    reference = section.reference
    if not found or reference is None:
        return None
    measure = found[0].measure
    values = among(section, measure)
    mine = (
        wholes(section, measure)
        .filter("overall")
        .with_columns(
            source=pl.lit(None, pl.String),
            way=pl.col("model").replace_strict(reference.own, default=None, return_dtype=pl.String),
        )
    )
    rows: list[TableRow] = []
    digits = digits_for(values["value"].abs().max())  # type: ignore[arg-type]
    place = {(each.model, each.language, each.template, each.source): each for each in found}
    cut = 0
    both = pl.concat([mine.drop_nulls("way"), values])
    labels = values["source"].unique(maintain_order=True).to_list()
    for (language, template, way), part in both.partition_by(
        "language", "template", "way", as_dict=True, maintain_order=True
    ).items():
        settings = _kind(str(way)) if both["way"].n_unique() == 1 else str(way)
        heading = [str(language) if both["language"].n_unique() > 1 else "", str(template), settings]
        rows.append(TableRow(" · ".join(name for name in heading if name and name not in OVER_ALL)))
        listed = part.sort("value", descending=True, nulls_last=True, maintain_order=True)
        cut += max(0, listed.height - BY_NAME)
        for row in listed.head(BY_NAME).iter_rows(named=True):
            own = row["source"] is None
            known = [place.get((row["model"], row["language"], row["template"], label)) for label in labels] if own else []
            cells = tuple(f"{each.higher} of {each.of}" if each else "" for each in known) or ("",) * len(labels)
            name = row["model"] if own else marked(row["model"], row["source"])
            rows.append(TableRow(name, (with_interval(row, digits), *cells)))
    notes = (f"{cut} more references are in the csv and json formats.",) if cut else ()
    higher = (f"higher than ({label})" if len(labels) > 1 else "higher than" for label in labels)
    shown = section.layout.shown(measure)
    note = "No test or correlation includes the references."
    if PUBLISHED in labels:
        repositories = {source.repository for part in published_scores().values() for f in part.files for source in f.sources}
        note += f" published: scores that the models' evaluators released ({', '.join(sorted(repositories))})."
    return Block(_title(section, measure), ("model", shown, *higher), tuple(rows), (note, *notes), "asked as")


def with_reference_rows(section: Section) -> Section:
    """The section with its references among its rows, their names marked: for tables that list models."""
    if section.reference is None or section.reference.rows is None:
        return section
    name = pl.concat_str("model", pl.lit(" ("), "source", pl.lit(")"))
    others = section.reference.rows.with_columns(model=name).select(section.rows.columns)
    return replace(section, rows=pl.concat([section.rows, others]))
