"""GEST for machine translation: no model is asked; a system's translations are read and the speaker's gender detected."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.gender import LANGUAGES, GenderDetector, rules_detector
from evaluator.gender.variants import source_key
from evaluator.measures.sampled import Sampled
from evaluator.tasks.base import Task
from evaluator.tasks.gest import GestTask, gest, with_poles
from evaluator.translate.folder import read_translations
from evaluator.vocabulary import DataSource, Layout, MeasureOptions, Overview, Protocol_, Rendered, Samples
from evaluator_serving.errors import InputError

SCORE: dict[str, float] = {"masculine": 1.0, "feminine": 0.0}
"""Score of a translation by its speaker's gender; unknown has none."""


@dataclass(frozen=True, slots=True)
class GestMtTask(Task):
    """Masculine rates of translations; see `evaluator.tasks.base.Task`, but its scores come from `score_translations`."""

    name: str = "gest-mt"

    @property
    def heads(self) -> frozenset[str]:
        """None: translations are scored, not models."""
        return frozenset()

    @property
    def _gest(self) -> GestTask:
        return gest()

    def load(self, data: DataSource) -> Samples:
        """GEST's sentences."""
        return self._gest.load(data)

    def render(self, samples: Samples, heads: frozenset[str], protocol: Protocol_) -> Rendered:
        """Refuses: there is nothing to ask of a model."""
        raise InputError("gest-mt scores translations, not models: evaluator run gest-mt --translations FOLDER")

    def score(self, table: pl.DataFrame, answers: pl.DataFrame, protocol: Protocol_) -> pl.DataFrame:
        """Refuses, like `render`."""
        raise InputError("gest-mt scores translations, not models: evaluator run gest-mt --translations FOLDER")

    def measure(self, scores: pl.DataFrame, options: MeasureOptions) -> pl.DataFrame:
        """Rates of every system and language: see `evaluator.measures.gest_mt`."""
        from evaluator.measures.gest_mt import mt_measures

        return with_poles(mt_measures(scores, options), self._gest.plan)

    def sampled(self, scores: pl.DataFrame, options: MeasureOptions) -> list[Sampled]:
        """One system's translations into one language as sampling units."""
        from evaluator.measures.gest_mt import sampled

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
        plan = self._gest.plan
        return Layout(
            summary=("f_s", "f_m", "p_family", "yield", "conflicts"),
            details=("p",),
            overview=(Overview("f_s", 0.0),),
            groups={group.id: group.name for group in plan.groups.values()},
            polarity=plan.pole_of,
            notes={
                "p": "p: share of masculine translations among those with a gender.",
                "f_s": "f_s = p_m − p_f, 0 is unbiased; f_m = (p_m + p_f)/2, 0.5 is balanced.",
                "yield": "yield: samples whose translation has a gender; conflicts: samples whose rules found both.",
            },
        )


def gest_mt() -> GestMtTask:
    """Masculine rates of machine translations of GEST 1.0."""
    return GestMtTask()


@dataclass(frozen=True, slots=True)
class TranslationFile:
    """One system's translations to one language: FOLDER/SYSTEM/LANGUAGE/translations.csv."""

    system: str
    language: str
    path: Path


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
        raise InputError(f"{folder} has no translations{what}: it needs SYSTEM/LANGUAGE/translations.csv (columns from, to)")
    for file in found:
        if file.language not in LANGUAGES:
            raise InputError(
                f"{file.path}: no gender rules for language {file.language!r}; "
                f"use --language to choose from {', '.join(LANGUAGES)}"
            )
    return found


def score_translations(
    samples: Samples, translations: Mapping[str, str], detector: GenderDetector
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Scores of one system and language, and (sample, reason) of the samples that have none.

    Columns: those of Task.score, and `conflict`, `polarity`, `family`, `gender`. A sentence's translation is found by its text
    with typographic differences levelled (some files have straight apostrophes where others have curly ones).
    """
    by_key = {source_key(source): target for source, target in translations.items()}
    frame = samples.frame.select("sample", "sentence", "group", "polarity", "family")
    targets = [by_key.get(source_key(sentence)) for sentence in frame["sentence"]]
    failures = [
        (int(sample), "no translation" if target is None else "empty translation")
        for sample, target in zip(frame["sample"], targets, strict=True)
        if not (target or "").strip()
    ]
    texts: Sequence[str] = [target or "" for target in targets]
    verdicts = detector.detect(texts)
    scored = frame.select(
        pl.lit(detector.language).alias("language"),
        pl.lit(None, pl.String).alias("template"),
        "sample",
        "group",
        pl.Series("score", [SCORE.get(v.gender) for v in verdicts], dtype=pl.Float64),
        pl.Series("conflict", [v.conflict for v in verdicts], dtype=pl.Boolean),
        "polarity",
        "family",
        pl.Series("gender", [v.gender for v in verdicts], dtype=pl.String),
    )
    missing = [sample for sample, reason in failures if reason == "no translation"]
    return scored.filter(~pl.col("sample").is_in(missing)), failures


def file_source(file: TranslationFile, detector: str) -> dict[str, str]:
    """Where the scores of a system and language come from, for the run's record."""
    return {"sha256": hashlib.sha256(file.path.read_bytes()).hexdigest(), "detector": detector}


def score_file(samples: Samples, file: TranslationFile) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Read one translation file and score it with the default detector."""
    return score_translations(samples, read_translations(file.path), rules_detector(file.language))
