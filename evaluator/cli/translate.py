"""`evaluator translate`: translate a data set's sentences, and make gender pairs of the translations."""

import csv
import io
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaluator.cli.options import LocalPath, data_option, finite
from evaluator.cli.translators import Money, check_talking, open_translator, outcomes, prompt_of, talking_options

if TYPE_CHECKING:
    from evaluator.gender.variants import PromptStyle


def folder_name(system: str) -> str:
    """A system's name as a folder: a local model's folder, a hub id with its slash replaced."""
    return Path(system).resolve().name if Path(system).exists() else system.replace("/", "--")


def called(name: str | None, system: str, prompt: Path | None) -> str:
    """The folder of a system's translations: by the name that it is given, else its own and its prompt's file."""
    own = folder_name(system)
    return folder_name(name) if name else own if prompt is None else f"{own}+{prompt.stem}"


def csv_bytes(rows: list[tuple[str, ...]]) -> bytes:
    """Rows as a CSV file's content."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


@click.command(name="translate")
@click.argument("dataset", metavar="TASK")
@click.option("--to", "languages", multiple=True, required=True, metavar="CODE", help="Language, e.g. sk; may be repeated.")
@click.option(
    "--translator",
    required=True,
    metavar="SPEC",
    help="amazon, deepl, google, model:SPEC (e.g. NLLB), llm:SPEC (a model that chats, or URL#NAME of one at a server) or "
    "folder:PATH; behind a local SPEC what it is allowed: ?pickle, ?trust-remote-code.",
)
@click.option("--prompted", metavar="SPEC", help="With --variants: another translator for the prompts, e.g. folder:PATH.")
@click.option("--variants", is_flag=True, help="Also translate the opposite gender's prompts and write gender_variants.csv.")
@click.option(
    "--prompt-style", type=click.Choice(["pronoun", "noun"]), default="pronoun", help="He/She said, or The man/woman."
)
@click.option("--out", type=LocalPath(path_type=Path), required=True, help="Folder for SYSTEM/LANGUAGE/translations.csv.")
@click.option("--name", metavar="SYSTEM", help="What the system is called there, and in results [its own name, +PROMPT].")
@click.option("--cache", type=LocalPath(path_type=Path), help="File of answers that are never asked for twice.")
@click.option("--offline", is_flag=True, help="Let the cache alone serve.")
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    callback=finite,
    default=0.0,
    show_default=True,
    help="US dollars for paid systems, for the whole command.",
)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Copies of a local model, on Ray.")
@talking_options
@data_option
def command(
    dataset: str,
    languages: tuple[str, ...],
    translator: str,
    prompted: str | None,
    variants: bool,
    prompt_style: "PromptStyle",
    out: Path,
    name: str | None,
    cache: Path | None,
    offline: bool,
    max_cost: float,
    workers: int,
    data: Path | None,
    **talking: Any,
) -> None:
    """Translate GEST's sentences for the tasks gest-mt and gest-slavic.

    Every answer is cached on disk: a killed command goes on where it was, and nothing is paid for twice.

    \b
    Examples:
      evaluator translate gest --to sk --translator model:facebook/nllb-200-3.3B --out translations --data DATA
      evaluator translate gest --to sk --translator deepl --max-cost 10 --variants --out translations
      evaluator translate gest --to sk --translator llm:utter-project/EuroLLM-9B-Instruct --dtype bfloat16 --out translations
      evaluator translate gest --to sk --translator llm:https://api.openai.com/v1#gpt-4.1 --max-cost 5 \\
          --extra prompt_price=2 --extra answer_price=8 --out translations
      evaluator run gest-mt --translations translations --data DATA
    """
    from evaluator.gender import rules_detector
    from evaluator.gender.variants import COLUMNS
    from evaluator.store.files import write_bytes
    from evaluator.tasks import task
    from evaluator.translate.folder import FolderTranslator
    from evaluator.translate.provenance import FILE, TranslationRecord
    from evaluator.translate.variants import Lookup, PromptedSystem, gender_pairs, translate_sentences
    from evaluator.vocabulary import DataSource
    from evaluator_serving.budget import Budget
    from evaluator_serving.errors import InputError

    check_talking(talking, translator, *([prompted] if prompted else []))
    frame = task(dataset).load(DataSource(data)).frame
    if not {"sentence", "group"} <= set(frame.columns):
        raise InputError(f"the samples of {dataset} are not sentences in groups: name a task like gest")
    answers = cache or out / "answers.jsonl"
    detectors = {code: rules_detector(code) for code in languages} if variants else {}
    money = Money(offline, Budget(max_cost))
    plain = open_translator(translator, answers, money, talking, workers)
    find: Lookup = plain.translate
    if prompted and prompted.startswith("folder:"):
        find = FolderTranslator(prompted.removeprefix("folder:")).find
    elif prompted:
        find = open_translator(prompted, answers, money, talking).translate
    system, words = plain.inner.system, prompt_of(translator, talking)
    made = TranslationRecord(translator, system, dataset, dict(plain.inner.parameters), words.text if words else None)
    made = replace(made, settings=getattr(plain.inner, "settings", {}))
    where = out / called(name, system, talking["prompt"] if words else None)
    for code in languages:
        made.check(where / code)
    for code in languages:
        done = translate_sentences(frame, plain.translate, code)
        folder = where / code
        content = csv_bytes([("from", "to"), *done.pairs])
        # First how it is made: a kill in between leaves no file that seems to be made otherwise.
        told = replace(made, outcomes=dict(sorted(plain.outcomes.items())), sha256=sha256(content).hexdigest())
        write_bytes(folder / FILE, told.text.encode())
        write_bytes(folder / "translations.csv", content)
        click.echo(f"{folder / 'translations.csv'}: {len(done.pairs)} sentences{outcomes(plain)}")
        if not variants:
            continue
        built = gender_pairs(frame, done, find, detectors[code], PromptedSystem(system, prompt_style))
        rows = [(v.translator, v.language, v.original, str(v.stereotype), v.male, v.female) for v in built.pairs]
        write_bytes(folder / "gender_variants.csv", csv_bytes([COLUMNS, *rows]))
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(built.outcomes.items()))
        click.echo(f"{folder / 'gender_variants.csv'}: {counts}")
