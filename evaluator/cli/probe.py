"""`evaluator probe`: ask one model about some words."""

import json
import math
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from evaluator.cli.options import code_option, engine_options, pickle_option
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked, Request

SLOT = "[]"


def check_text(text: str, words: tuple[str, ...]) -> None:
    """What can be wrong whatever the model is, found before it is looked for. Raises InputError."""
    if SLOT not in text:
        raise InputError(f"the text {text!r} has no {SLOT}: mark where the words go, e.g. 'The doctor said that [] is late.'")
    if not all(word.strip() for word in words):
        raise InputError("one of the words is empty: give words that can stand in the slot")


def probe_request(text: str, words: tuple[str, ...], heads: frozenset[str]) -> Request:
    """The request behind `probe`: masked where the model has a masked head, else the continuation of a text ending in [].

    A word that continues a text keeps the space before the slot: `He is a []` asks for ` doctor` after `He is a`.
    """
    parts = tuple(text.split(SLOT))
    if "masked" in heads:
        return Masked(parts, tuple((word,) * (len(parts) - 1) for word in words))
    if len(parts) != 2 or parts[1]:
        raise InputError(f"this is a generative model: the text must end in {SLOT}, as in 'The doctor said that []'")
    context = parts[0]
    bare = context.rstrip(" ")
    return Continuation(bare, tuple(context[len(bare) :] + word for word in words))


@click.command(name="probe")
@click.argument("model")
@click.argument("text")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@engine_options
@pickle_option
@code_option
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    model: str,
    text: str,
    words: tuple[str, ...],
    allow_pickle: bool,
    trust_remote_code: bool,
    format_: str,
    **engine: Any,
) -> None:
    """Print each word's tokens, ids, log-probability (natural log) and probability in TEXT's slot [].

    \b
    Examples:
      evaluator probe bert-base-uncased '[] said: "I love cooking."' He She
      evaluator probe gpt2 '"I love cooking.", []' he she
    """
    check_text(text, words)
    from evaluator_serving.answers import assemble
    from evaluator_serving.checks.verify import is_checked, verify_engine
    from evaluator_serving.choose import choose_engine
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.models.model_cache import tokenizer_of
    from evaluator_serving.models.resolving import resolve_here
    from evaluator_serving.opening import open_engine
    from evaluator_serving.rows import make_chunk

    allowed = {"allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code}
    source = resolve_here(model, chat_template=engine["chat_template"], **allowed)
    if not source.heads & {"masked", "causal"}:
        raise InputError(f"{model} is neither a masked nor a generative model: probe needs one of the two")
    request = probe_request(text, words, source.heads)
    encoded = encoder_for(source).encode(request)
    options = EngineOptions(**{key: engine[key] for key in ("dtype", "device", "batch_tokens", "extra")})
    # A single question isn't worth exporting a graph for: `auto` means another engine than transformers only where one has
    # what it needs.
    auto = engine["engine"] == "auto"
    name = choose_engine(source, {row.head for row in encoded.rows}, options, ready=True) if auto else engine["engine"]
    loaded = open_engine(name, source, options, encoded.rows)
    try:
        if auto and is_checked(name, options.dtype):
            verify_engine(loaded, source, options, encoded.rows)
        chunk = make_chunk([encoded])
        (answer,) = assemble(chunk, loaded.score(chunk.merged.rows))
    finally:
        loaded.close()
    tokenizer = tokenizer_of(source)
    rows = [
        {
            "word": word,
            "tokens": tokenizer.convert_ids_to_tokens(list(ids)),
            "ids": list(ids),
            "logprob": math.fsum(logprobs),
            "probability": math.exp(math.fsum(logprobs)),
        }
        for word, ids, logprobs in zip(words, answer.tokens, answer.logprobs, strict=True)
    ]
    if format_ == "json":
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table()
    for column in ("word", "tokens", "ids"):
        table.add_column(column)
    table.add_column("log P", justify="right")
    table.add_column("P", justify="right")
    for row in rows:
        table.add_row(
            row["word"],
            " ".join(row["tokens"]),
            " ".join(map(str, row["ids"])),
            f"{row['logprob']:.4f}",
            f"{row['probability']:.3g}",
        )
    Console().print(table)
