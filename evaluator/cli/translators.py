"""Options of the commands that translate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import LocalPath, date_option, extra_option, finite, thinking_option
from evaluator_serving.engine import BYTES


def answer_options(cache: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where answers are cached (`cache`: by default), and what new ones may cost."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--max-cost",
                type=click.FloatRange(min=0),
                callback=finite,
                default=0.0,
                show_default=True,
                help="Maximum cost of the command in US dollars, for paid systems.",
            ),
            click.option("--offline", is_flag=True, help="Use cached answers only."),
            click.option("--cache", type=LocalPath(path_type=Path, dir_okay=False), help=f"Cache file of answers [{cache}]."),
        ):
            command = option(command)
        return command

    return decorate


def talking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a language model is asked (`llm:SPEC`)."""
    for option in (
        extra_option("llm: engine-specific option; may be repeated."),
        click.option("--device", default="auto", show_default=True, help="llm: auto, cpu, cuda, cuda:1, …"),
        click.option("--dtype", type=click.Choice(list(BYTES)), default="float32", show_default=True, help="llm: precision."),
        click.option("--engine", default="auto", show_default=True, metavar="NAME", help="llm: engine."),
        thinking_option,
        date_option("llm: date that chat templates insert as today's [2026-01-01, so that cached answers stay valid]."),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=1),
            help="llm: maximum number of tokens of a translation [256]; reasoning models need thousands.",
        ),
        click.option("--prompt", type=LocalPath(path_type=Path), help="llm: prompt (TOML), with optional few-shot examples."),
    ):
        command = option(command)
    return command
