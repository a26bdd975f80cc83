"""`evaluator train-nsp`: a next-sentence classifier out of a generative model."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, calls, pickle_option


@calls("evaluator.nsp.function:train_nsp")
@click.command(name="train-nsp")
@click.argument("model")
@click.argument("corpus", nargs=-1, required=True, type=LocalPath(path_type=Path, exists=True))
@click.option("--out", type=LocalPath(path_type=Path), required=True, help="Folder of the trained classifier.")
@click.option("--protocol", type=click.Choice(["default", "published"]), default="default", show_default=True)
@click.option("--language", default="en", show_default=True, help="Language of T5's published training prefix.")
@click.option("--pairs", type=click.IntRange(min=1), help="Maximum number of training pairs [1000000].")
@click.option("--epochs", type=click.IntRange(min=1), help="Maximum number of epochs [1].")
@click.option("--batch", type=click.IntRange(min=1), help="Pairs per forward pass [GPT-2 4, T5 24, mT5 8].")
@click.option("--accumulate", type=click.IntRange(min=1), help="Forward passes per step [GPT-2 16, T5 3, mT5 8].")
@click.option("--length", type=click.IntRange(min=8), help="Maximum number of tokens per pair [256].")
@click.option("--core-rate", type=click.FloatRange(min=0), help="Learning rate of the model [5e-6, mT5 1e-4].")
@click.option("--head-rate", type=click.FloatRange(min=0), help="Learning rate of the new layers [1e-3].")
@click.option("--warmup", type=click.FloatRange(0, 1), help="Share of the steps used for warm-up [0.01].")
@click.option("--held-out", type=click.FloatRange(0, 0.5), help="Share of the articles held out to measure accuracy [0.02].")
@click.option("--prefix", help="Text before every pair [T5 'binary classification: ', others none].")
@click.option("--seed", type=int, help="Seed of the pairs, their order and the new layers [0].")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), help="bfloat16: mixed precision [float32].")
@pickle_option
@click.option("--device", default="auto", show_default=True)
@click.option("--checkpoint-every", "every", type=click.IntRange(min=1), default=500, show_default=True, help="Steps.")
def command(out: Path, **arguments: Any) -> None:
    """Fine-tune MODEL (GPT-2-like, T5 or mT5) to tell consecutive sentences from random ones.

    CORPUS is one or more files or folders of articles: .jsonl with one object {"text": …} per line, or plain text with a
    blank line between articles. Sentences that follow each other are positive pairs, a sentence of another article makes
    a negative one. Defaults in brackets are the papers'. Run the same command again to resume after a crash.

    \b
    Example:
      evaluator train-nsp gpt2 wiki.jsonl --out models/gpt2-nsp
      evaluator run stereoset-en --model models/gpt2-nsp --out runs/nsp
    """
    from evaluator.nsp.function import train_nsp

    result = train_nsp(out=out, **arguments, report=lambda line: click.echo(line, err=True))
    accuracy = "no held-out pairs" if result.accuracy is None else f"accuracy {result.accuracy:.3f} on held-out pairs"
    click.echo(f"{out}: {result.pairs} pairs in {result.steps} steps, {accuracy}")
