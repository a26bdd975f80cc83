"""Options that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evaluator_serving.engine import BYTES, EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.registry import ENGINES
from evaluator_serving.weights.cache import parse_size

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

data_option: Decorator = click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="EVALUATOR_DATA",
    help="Folder that holds the public data sets (default: EVALUATOR_DATA, else the cache of `evaluator data fetch`).",
)


def finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of a number's option: `nan` and `inf` are numbers to Python and nonsense here."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to reckon with", context, parameter)
    return value


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Callback of an option that is a number of bytes: 500GB."""
    if value is None:
        return None
    try:
        return parse_size(value)
    except InputError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def leaving_out_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--strict and --retry, for commands that score."""
    strict = click.option("--strict", is_flag=True, help="Refuse what can't be asked of a model instead of leaving it out.")
    retry = click.option("--retry", is_flag=True, help="Ask again what failed every time it was tried (and was given up).")
    return strict(retry(command))


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--engine, --dtype, --device, --chat-template, --batch-tokens and --extra, for commands that load a model."""
    for option in (
        click.option("--extra", multiple=True, metavar="KEY=VALUE", help="Engine-specific option; may be repeated."),
        click.option("--batch-tokens", type=click.IntRange(min=1), help="Most padded tokens in one forward batch."),
        click.option(
            "--chat-template",
            type=click.Choice(["none", "user"]),
            default="none",
            show_default=True,
            help="`user`: the prompt becomes the beginning of the assistant's turn.",
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, …"),
        click.option(
            "--dtype",
            type=click.Choice(list(BYTES)),
            default="float32",
            show_default=True,
            help="Precision of the weights and the arithmetic.",
        ),
        click.option(
            "--engine",
            default="auto",
            show_default=True,
            metavar="NAME",
            help=f"What runs the model: auto, {', '.join(ENGINES)}, a plug-in's (see `evaluator engines`), or module:Class.",
        ),
    ):
        command = option(command)
    return command


def make_engine_options(dtype: str, device: str, batch_tokens: int | None, extra: tuple[str, ...]) -> EngineOptions:
    """EngineOptions from the command line's words. Raises InputError for an `--extra` without `=`."""
    return EngineOptions(dtype=dtype, device=device, batch_tokens=batch_tokens, extra=key_values(extra))


def key_values(items: tuple[str, ...], option: str = "--extra") -> dict[str, str]:
    """The pairs of a repeated `--extra KEY=VALUE`, or of another option. Raises InputError for one without `=`."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            example = "url=http://127.0.0.1:8000/v1" if option == "--extra" else "case=orig"
            raise InputError(f"{option} {item!r} is not KEY=VALUE: write for example {option} {example}")
        pairs[key] = value
    return pairs
