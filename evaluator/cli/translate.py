"""`evaluator translate`: translate a data set's sentences, and make gender pairs of the translations."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaluator.cli.options import data_option, finite
from evaluator.cli.translators import Money, open_translator, outcomes, talking_options

if TYPE_CHECKING:
    from evaluator.gender.variants import PromptStyle


def folder_name(system: str) -> str:
    """A system's name as a folder: a local model's folder, a hub id with its slash replaced."""
    return Path(system).resolve().name if Path(system).exists() else system.replace("/", "--")


def write_csv(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write rows as a CSV file that appears whole or not at all."""
    from evaluator.store.files import write_bytes

    text = io.StringIO()
    csv.writer(text).writerows(rows)
    write_bytes(path, text.getvalue().encode())


@click.command(name="translate")
@click.argument("dataset", metavar="TASK")
@click.option("--to", "languages", multiple=True, required=True, metavar="CODE", help="Language, e.g. sk; may be repeated.")
@click.option(
    "--translator",
    required=True,
    metavar="SPEC",
    help="amazon, deepl, google, model:SPEC (e.g. NLLB), llm:SPEC (a model that chats, or URL#NAME of one at a server) or "
    "folder:PATH.",
)
@click.option("--prompted", metavar="SPEC", help="With --variants: another translator for the prompts, e.g. folder:PATH.")
@click.option("--variants", is_flag=True, help="Also translate the opposite gender's prompts and write gender_variants.csv.")
@click.option(
    "--prompt-style", type=click.Choice(["pronoun", "noun"]), default="pronoun", help="He/She said, or The man/woman."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for SYSTEM/LANGUAGE/translations.csv.")
@click.option("--cache", type=click.Path(path_type=Path), help="File of answers that are never asked for twice.")
@click.option("--offline", is_flag=True, help="Let the cache alone serve.")
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    callback=finite,
    default=0.0,
    show_default=True,
    help="US dollars for paid systems.",
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
    from evaluator.tasks import task
    from evaluator.translate.folder import FolderTranslator
    from evaluator.translate.variants import Asked, Find, gender_pairs, translate_sentences
    from evaluator.vocabulary import DataSource
    from evaluator_serving.errors import InputError

    frame = task(dataset).load(DataSource(data)).frame
    if not {"sentence", "group"} <= set(frame.columns):
        raise InputError(f"the samples of {dataset} are not sentences in groups: name a task like gest")
    answers = cache or out / "answers.jsonl"
    detectors = {code: rules_detector(code) for code in languages} if variants else {}
    money = Money(offline, max_cost)
    plain = open_translator(translator, answers, money, talking, workers)
    find: Find = plain.translate
    if prompted and prompted.startswith("folder:"):
        find = FolderTranslator(prompted.removeprefix("folder:")).find
    elif prompted:
        find = open_translator(prompted, answers, money, talking).translate
    system = plain.inner.system
    for code in languages:
        done = translate_sentences(frame, plain.translate, code)
        folder = out / folder_name(system) / code
        write_csv(folder / "translations.csv", [("from", "to"), *done.pairs])
        click.echo(f"{folder / 'translations.csv'}: {len(done.pairs)} sentences{outcomes(plain)}")
        if not variants:
            continue
        built = gender_pairs(frame, done, find, detectors[code], Asked(system, prompt_style))
        rows = [(v.translator, v.language, v.original, str(v.stereotype), v.male, v.female) for v in built.pairs]
        write_csv(folder / "gender_variants.csv", [COLUMNS, *rows])
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(built.outcomes.items()))
        click.echo(f"{folder / 'gender_variants.csv'}: {counts}")
