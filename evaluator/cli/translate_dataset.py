"""`evaluator translate-dataset`: a data set in a new language."""

import json
from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, data_option, finite
from evaluator.cli.translators import Money, check_talking, open_translator, outcomes, talking_options
from evaluator.translate import TRANSLATED
from evaluator.vocabulary import DataSource


@click.command(name="translate-dataset")
@click.argument("dataset", type=click.Choice(TRANSLATED))
@click.option("--to", "language", required=True, metavar="LANG", help="Two-letter code of the language.")
@click.option(
    "--translator",
    required=True,
    metavar="T",
    help="amazon, deepl, google, model:SPEC, llm:SPEC (it chats; or URL#NAME) or folder:PATH (LANG/translations.csv).",
)
@click.option("--out", type=LocalPath(path_type=Path, file_okay=False), required=True, help="Data folder to write into.")
@click.option("--cache", type=LocalPath(path_type=Path, dir_okay=False), help="File of kept answers [in the user's cache].")
@click.option("--offline", is_flag=True, help="Take everything from the cache; ask for nothing.")
@click.option("--max-cost", type=click.FloatRange(min=0), callback=finite, default=0.0, show_default=True, help="US dollars.")
@click.option("--repairs", type=LocalPath(path_type=Path, exists=True), help="A corrected list of failures.")
@talking_options
@data_option
def command(
    dataset: str,
    language: str,
    translator: str,
    out: Path,
    cache: Path | None,
    offline: bool,
    max_cost: float,
    repairs: Path | None,
    data: Path | None,
    **talking: Any,
) -> None:
    """Translate StereoSet's English file, protecting BLANK and checking that it and the final punctuation survived.

    Writes OUT/stereoset/dev_LANG.json, and what failed to OUT/stereoset/dev_LANG.failures.csv: correct the column `translation`
    there and give the file as --repairs. Every answer is kept, so that running the command again asks for nothing twice.

    \b
    Example:
      evaluator translate-dataset stereoset --to sk --translator deepl --max-cost 15 --out mydata
      evaluator run stereoset-sk --data mydata --model bert-base-multilingual-cased --out runs/sk
    """
    from evaluator.datasets.stereoset import file_name
    from evaluator.store.files import write_bytes
    from evaluator.tasks import task
    from evaluator.translate.stereoset import failures_csv, read_repairs, translate_stereoset
    from evaluator_serving.budget import Budget
    from evaluator_serving.cache import cache_dir
    from evaluator_serving.errors import InputError

    if language == "en":
        raise InputError("--to en: the data set is in English already; give another language")
    check_talking(talking, translator)
    samples = task(f"{dataset}-en").load(DataSource(data))
    answers = cache or cache_dir() / "translations.jsonl"
    cached = open_translator(translator, answers, Money(offline, Budget(max_cost)), talking)
    fixed = read_repairs(repairs) if repairs else {}
    result = translate_stereoset(samples, cached, language, fixed)
    path = out / dataset / file_name(language)
    listed = path.with_suffix(".failures.csv")
    content = json.dumps(result.data, ensure_ascii=False, indent=1) + "\n"
    write_bytes(path, content.encode())
    write_bytes(listed, failures_csv(result.failures).encode())
    for name, reason in samples.failures:
        click.echo(f"left out: example {name} of the English file: {reason}", err=True)
    click.echo(f"{path}: {result.examples} examples{outcomes(cached)}")
    if result.failures:
        click.echo(f"{listed}: {len(result.failures)} translations to repair; give it back with --repairs when corrected")
