"""A data set in a new language (`evaluator translate-dataset`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from evaluator.datasets.stereoset import file_name
from evaluator.store.files import write_bytes
from evaluator.tasks import task
from evaluator.translate.stereoset import TranslatedFile, failures_csv, read_repairs, translate_stereoset
from evaluator.translation.translators import LLMChoices, Money, check_talking, open_translator, outcomes
from evaluator.vocabulary import DataSource
from evaluator_serving.budget import Budget
from evaluator_serving.cache import cache_dir
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class TranslatedDataset:
    """A translated data set.

    Attributes:
        path: its file. listed: file of the translations that failed, to be corrected.
        file: its content, and the failures.
        skipped: (example, reason) of the English file's examples that can't be used.
        outcomes: what became of a language model's other answers, in words.
    """

    path: Path
    listed: Path
    file: TranslatedFile
    skipped: Sequence[tuple[str, str]]
    outcomes: str


def translate_dataset(
    dataset: str,
    language: str,
    translator: str,
    out: Path,
    *,
    cache: Path | None = None,
    offline: bool = False,
    max_cost: float = 0.0,
    repairs: Path | None = None,
    data: Path | None = None,
    report: Callable[[str], None] = print,
    **talking: Unpack[LLMChoices],
) -> TranslatedDataset:
    """Translate a data set's English file into the data folder `out`, with a list of what failed.

    Args:
        dataset: one of `evaluator.translate.TRANSLATED`. language: two-letter code.
        cache: file of answers (default: in the user's cache); offline: only the cache answers.
        max_cost: US dollars that a paid translator may cost.
        repairs: a corrected list of failures.
        report: called with lines on the progress.
        talking: how a language model is asked (`llm:SPEC`).

    Raises InputError for wrong choices, CostError at the limit, and EngineError where the translator fails.
    """
    if language == "en":
        raise InputError("--to en: the data set is in English already; give another language")
    check_talking(talking, translator)
    samples = task(f"{dataset}-en").load(DataSource(data))
    answers = cache or cache_dir() / "translations.jsonl"
    cached = open_translator(translator, answers, Money(offline, Budget(max_cost)), talking, report=report)
    file = translate_stereoset(samples, cached, language, read_repairs(repairs) if repairs else {})
    path = out / dataset / file_name(language)
    listed = path.with_suffix(".failures.csv")
    write_bytes(path, (json.dumps(file.data, ensure_ascii=False, indent=1) + "\n").encode())
    write_bytes(listed, failures_csv(file.failures).encode())
    return TranslatedDataset(path, listed, file, samples.failures, outcomes(cached))
