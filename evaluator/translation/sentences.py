"""Translations of GEST-like sentences, and gender pairs made from them (`evaluator translate`)."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Unpack

from evaluator.gender import rules_detector
from evaluator.gender.variants import COLUMNS, PromptStyle
from evaluator.store.files import write_bytes
from evaluator.tasks import task
from evaluator.translate.folder import FolderTranslator
from evaluator.translate.provenance import FILE, TranslationRecord
from evaluator.translate.variants import Lookup, PromptedSystem, gender_pairs, translate_sentences
from evaluator.translation.translators import LLMChoices, Money, check_talking, open_translator, outcomes, prompt_of
from evaluator.vocabulary import DataSource
from evaluator_serving.budget import Budget
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, and what is in it, in words."""

    path: Path
    content: str


def translate_task(
    dataset: str,
    languages: Sequence[str],
    translator: str,
    out: Path,
    *,
    prompted: str | None = None,
    variants: bool = False,
    prompt_style: PromptStyle = "pronoun",
    name: str | None = None,
    cache: Path | None = None,
    offline: bool = False,
    max_cost: float = 0.0,
    workers: int = 1,
    data: Path | None = None,
    report: Callable[[str], None] = print,
    **talking: Unpack[LLMChoices],
) -> Iterator[WrittenFile]:
    """Translate a task's sentences, language by language; yields each file as it is written.

    Every answer is cached: the same call goes on where an interrupted one was.

    Args:
        dataset: the task. languages: codes such as `sk`.
        translator: what translates, as `--translator` takes it.
        out: folder for SYSTEM/LANGUAGE/translations.csv; name: SYSTEM (default: the translator's own name).
        variants: also translate the opposite gender's prompts, and write gender_variants.csv.
        prompted, prompt_style: what translates the prompts (default: the same), and their style.
        cache: file of answers (default: OUT/answers.jsonl); offline: only the cache answers.
        max_cost: US dollars that all paid translators may cost together.
        workers: copies of a local model, on Ray.
        report: called with lines on the progress.
        talking: how a language model is asked (`llm:SPEC`).

    Raises InputError for wrong choices, CostError at the limit, and EngineError where a translator fails.
    """
    check_talking(talking, translator, *([prompted] if prompted else []))
    frame = task(dataset).load(DataSource(data)).frame
    if not {"sentence", "group"} <= set(frame.columns):
        raise InputError(f"the samples of {dataset} are not sentences in groups: name a task like gest")
    answers = cache or out / "answers.jsonl"
    detectors = {code: rules_detector(code) for code in languages} if variants else {}
    money = Money(offline, Budget(max_cost))
    plain = open_translator(translator, answers, money, talking, workers, report)
    find: Lookup = plain.translate
    if prompted and prompted.startswith("folder:"):
        find = FolderTranslator(prompted.removeprefix("folder:")).find
    elif prompted:
        find = open_translator(prompted, answers, money, talking, report=report).translate
    system, words = plain.inner.system, prompt_of(translator, talking)
    made = TranslationRecord(translator, system, dataset, dict(plain.inner.parameters), words.text if words else None)
    made = replace(made, settings=getattr(plain.inner, "settings", {}))
    where = out / _folder_of(name, system, talking.get("prompt") if words else None)
    for code in languages:
        made.check(where / code)
    for code in languages:
        done = translate_sentences(frame, plain.translate, code)
        folder = where / code
        content = _csv([("from", "to"), *done.pairs])
        # First how it is made: a kill in between leaves no file that seems to be made otherwise.
        told = replace(made, outcomes=dict(sorted(plain.outcomes.items())), sha256=sha256(content).hexdigest())
        write_bytes(folder / FILE, told.text.encode())
        write_bytes(folder / "translations.csv", content)
        yield WrittenFile(folder / "translations.csv", f"{len(done.pairs)} sentences{outcomes(plain)}")
        if not variants:
            continue
        built = gender_pairs(frame, done, find, detectors[code], PromptedSystem(system, prompt_style))
        rows = [(v.translator, v.language, v.original, str(v.stereotype), v.male, v.female) for v in built.pairs]
        write_bytes(folder / "gender_variants.csv", _csv([COLUMNS, *rows]))
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(built.outcomes.items()))
        yield WrittenFile(folder / "gender_variants.csv", counts)


def folder_name(system: str) -> str:
    """A system's name as a folder: a local model's folder, a hub id with its slash replaced."""
    return Path(system).resolve().name if Path(system).exists() else system.replace("/", "--")


def _folder_of(name: str | None, system: str, prompt: Path | None) -> str:
    """Name of the folder of a system's translations: the given one, else the system's own with that of the prompt's file."""
    own = folder_name(system)
    return folder_name(name) if name else own if prompt is None else f"{own}+{prompt.stem}"


def _csv(rows: list[tuple[str, ...]]) -> bytes:
    """Rows as a CSV file's content."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
