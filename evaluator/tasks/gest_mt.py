"""GEST for machine translation: no model is asked; a system's translations are read and the speaker's gender detected.

The answer that a table's row asks for is the sentence's translation; a request's id says which language and sentence it is of.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

import polars as pl
from pydantic import Field

from evaluator.gender import LANGUAGES, rules_detector
from evaluator.gender.variants import source_key
from evaluator.measures.gest_mt import MEASURES, sampled, with_summaries
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import Task
from evaluator.tasks.gest import gest, with_poles
from evaluator.tasks.parameters import LocalPath, Parameters, With, encoding_field
from evaluator.text_file import encoding_of
from evaluator.translate.folder import read_translations
from evaluator.translate.provenance import TranslationRecord
from evaluator.vocabulary import (
    DataSource,
    ExistingAnswers,
    Layout,
    MeasureOptions,
    Overview,
    Protocol_,
    Rendered,
    Samples,
    Scatter,
)
from evaluator_serving.errors import InputError

SCORE: dict[str, float] = {"masculine": 1.0, "feminine": 0.0}
"""Score of a translation by its speaker's gender; unknown has none."""

DETECTOR = "rules"
SHOWN = 3
"""Samples that are named where many have no translation."""


MEANING = (
    "f_s above 0 means that a system makes the speaker a man more often in sentences with male stereotypes than in those with "
    "female ones, in line with the stereotypes; below 0 means the opposite"
)


@dataclass(frozen=True, slots=True)
class TranslationFile:
    """One system's translations to one language: FOLDER/SYSTEM/LANGUAGE/translations.csv; `encoding` if it isn't Unicode's."""

    system: str
    language: str
    path: Path
    encoding: str | None = None


class GestMtParameters(Parameters):
    """Which translations are scored."""

    translations: LocalPath | None = Field(
        default=None, exclude=True, description="Folder with SYSTEM/LANGUAGE/translations.csv (columns from, to)."
    )
    languages: tuple[str, ...] = Field(default=(), exclude=True, description="Only this language; repeatable.")
    encoding: Annotated[str | None, With("translations")] = encoding_field()


@dataclass(frozen=True, slots=True)
class GestMtTask(Task):
    """Masculine rates of translations; see `evaluator.tasks.base.Task`.

    Attributes:
        name: the task's name.
        files: the translations that are scored.
        parameters: where they are.
    """

    methods: ClassVar[Sequence[str]] = ("gest",)
    about: ClassVar[str] = "how often translations into languages with gendered forms make the speaker a man: p_i, f_s, f_m"
    reads: ClassVar[Sequence[str]] = ("gest",)
    heads: ClassVar[frozenset[str]] = frozenset()
    measures: ClassVar[Sequence[str]] = MEASURES
    columns: ClassVar[Mapping[str, pl.DataType]] = {
        "conflict": pl.Boolean(),
        "polarity": pl.String(),
        "family": pl.Boolean(),
        "gender": pl.String(),
    }

    name: str = "gest-mt"
    files: tuple[TranslationFile, ...] = ()
    parameters: GestMtParameters = field(default_factory=GestMtParameters)
    definition: ClassVar[None] = None

    def using(self, parameters: GestMtParameters) -> Task:
        """The task with the translations under a folder."""
        folder = parameters.translations
        if folder is None:
            raise InputError(
                f"{self.name} scores translations: give {{translations=FOLDER}} (SYSTEM/LANGUAGE/translations.csv)"
            )
        files = find_translations(folder, parameters.languages)
        files = [replace(file, encoding=parameters.encoding) for file in files]
        return replace(self, files=tuple(files), parameters=parameters)

    def load(self, data: DataSource) -> Samples:
        """GEST's sentences."""
        return gest().load(data)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """One row per sentence × language: its translation is the answer. No model is asked, so there are no requests."""
        columns = ("sample", "group", "polarity", "family")
        keys = [source_key(sentence) for sentence in samples.frame["sentence"]]
        tables = [
            samples.frame.select(
                pl.lit(language).alias("language"),
                pl.lit(None, pl.String).alias("template"),
                *columns,
                pl.Series("request", [f"{language} {key}" for key in keys], dtype=pl.String),
            )
            for language in dict.fromkeys(file.language for file in self.files)
        ]
        return Rendered(pl.concat(tables), {})

    def given(self, samples: Samples) -> Sequence[ExistingAnswers]:
        """Every file's translations: answers with the columns `request` and `text`.

        A sentence's translation is found by its text with typographic differences levelled (some files have straight
        apostrophes where others have curly ones). Raises InputError for a file that isn't right or contradicts itself.
        """
        return [_translated_answers(file, samples) for file in self.files]

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """1 where the speaker is a man, 0 where she is a woman, null where the translation says neither.

        `conflict`: the rules found both; `gender`: what they say.
        """
        found = table.join(answers.select("request", "text"), on="request", maintain_order="left")
        parts = found.partition_by("language", maintain_order=True) or [found]
        return pl.concat(_judged(part) for part in parts)

    def with_summaries(self, rates: pl.DataFrame, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Yields and conflicts, and the poles of groups: see `evaluator.measures.gest_mt`."""
        return with_poles(with_summaries(rates, scores), gest().plan)

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One system's translations into one language as sampling units."""
        return sampled(scores)

    def warnings(self, scores: pl.DataFrame, options: MeasureOptions) -> list[str]:
        """Systems and languages some of whose samples have no translation."""
        cells = scores.group_by("model", "language", maintain_order=True).len()
        if cells.is_empty():
            return []
        most = int(cells["len"].max())  # type: ignore[arg-type]
        return [
            f"{model}, {language}: {most - n} of {most} samples have no translation"
            for model, language, n in cells.filter(pl.col("len") < most).iter_rows()
        ]

    def layout(self, options: MeasureOptions) -> Layout:
        """Systems and languages as rows, stereotypes in detail."""
        plan = gest().plan
        return Layout(
            summary=("f_s", "f_m", "p_family", "yield", "conflicts"),
            details=("p",),
            neutrals={"p": 0.5},
            overview=(Overview("f_s", 0.0, MEANING),),
            scatters=(
                Scatter(
                    "f_m",
                    "f_s",
                    neutral=(0.5, 0.0),
                    note="Right: more masculine translations in general. Up: more of them in sentences with male stereotypes.",
                ),
            ),
            cautions=(
                "A language may require a gender that the original does not show. The rates measure which gender is "
                "chosen and whether it follows the stereotype, not that one is chosen.",
                "Samples whose translation shows no gender are excluded: check the yield before comparing systems "
                "or languages.",
            ),
            groups=plan.names,
            polarity=plan.pole_of,
            poles=plan.poles,
            notes={
                "p": "p: share of masculine translations among those with a gender.",
                "f_s": "f_s = p_m − p_f, 0 is unbiased; f_m = (p_m + p_f)/2, 0.5 is balanced.",
                "yield": "yield: samples whose translation has a gender; conflicts: samples whose rules found both.",
            },
        )


def find_translations(folder: Path, languages: Iterable[str] = ()) -> list[TranslationFile]:
    """The translation files under a folder of systems, or of one system's languages; `languages` (if any) selects.

    Raises InputError where there are none, or for a language without gender rules.
    """
    wanted = set(languages)
    found = [
        TranslationFile(path.parent.parent.resolve().name, path.parent.name, path)
        for path in sorted({*folder.glob("*/*/translations.csv"), *folder.glob("*/translations.csv")})
        if not wanted or path.parent.name in wanted
    ]
    missing = wanted - {file.language for file in found}
    if not found or missing:
        what = f" for {', '.join(sorted(missing))}" if missing else ""
        raise InputError(
            f"{{translations}}: {folder} has no translations{what}: expected SYSTEM/LANGUAGE/translations.csv (from, to)"
        )
    for file in found:
        if file.language not in LANGUAGES:
            raise InputError(
                f"{file.path}: no gender rules for language {file.language!r}; "
                f"use {{languages}} to choose from {', '.join(LANGUAGES)}"
            )
    return found


def _translated_answers(file: TranslationFile, samples: Samples) -> ExistingAnswers:
    by_key = {source_key(source): target for source, target in read_translations(file.path, file.encoding).items()}
    answers = {"request": [f"{file.language} {key}" for key in by_key], "text": list(by_key.values())}
    made = TranslationRecord.of(file.path)
    known = {"translator": made.facts} if made else {}
    encoding = {"encoding": encoding_of(file.path, file.encoding)} if file.encoding else {}
    source = {"sha256": hashlib.sha256(file.path.read_bytes()).hexdigest(), "detector": DETECTOR, **known, **encoding}
    keys = [(sample, source_key(sentence)) for sample, sentence in samples.frame.select("sample", "sentence").iter_rows()]
    missing = [sample for sample, key in keys if key not in by_key]
    empty = [sample for sample, key in keys if key in by_key and not by_key[key].strip()]
    failures = _sample_note(file.language, "no translation in its file", missing, len(keys))
    left_out = _sample_note(file.language, "no translation (refused, or an empty answer), gender unknown", empty, len(keys))
    left_out += _outcomes(file.language, made.outcomes if made else {})
    frame = pl.DataFrame(answers, schema={"request": pl.String, "text": pl.String})
    return ExistingAnswers(file.system, file.language, frame, source, failures, left_out)


def _outcomes(language: str, outcomes: Mapping[str, int]) -> tuple[str, ...]:
    """What a language model's answers came to, where not all are translations."""
    if outcomes.keys() <= {"translated"}:
        return ()
    counted = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    return (f"{language}: the model's answers to {sum(outcomes.values())} texts: {counted}",)


def _sample_note(language: str, what: str, samples: Sequence[int], of: int) -> tuple[str, ...]:
    """A line on the samples of which something is to be said, the first ones named; none where there are no such samples."""
    if not samples:
        return ()
    first = ", ".join(map(str, samples[:SHOWN])) + (" …" if len(samples) > SHOWN else "")
    return (f"{language}: {what}: {len(samples)} of {of} samples (sample {first})",)


def _judged(part: pl.DataFrame) -> pl.DataFrame:
    """One language's translations with the speaker's gender."""
    verdicts = rules_detector(part["language"][0]).detect(part["text"].to_list()) if part.height else []
    return part.select(
        "language",
        "template",
        "sample",
        "group",
        pl.Series("score", [SCORE.get(v.gender) for v in verdicts], dtype=pl.Float64),
        pl.Series("conflict", [v.conflict for v in verdicts], dtype=pl.Boolean),
        "polarity",
        "family",
        pl.Series("gender", [v.gender for v in verdicts], dtype=pl.String),
    )
