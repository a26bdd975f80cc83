"""What `evaluator tasks` and `evaluator engines` share: the program's own, then those of plug-ins, as lines or JSON."""

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

import click

T = TypeVar("T")


def listed(
    known: Iterable[T],
    facts: Callable[[T], dict[str, object]],
    shown: Callable[[T], list[str]],
    refused: Callable[[], Iterable[str]],
    *,
    as_json: bool,
) -> None:
    """Print all that are `known`; plug-ins that were `refused` while they were looked for are lines on stderr."""
    found = list(known)
    if as_json:
        click.echo(json.dumps([facts(one) for one in found], indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(line for one in found for line in shown(one)))
    for line in refused():
        click.echo(line, err=True)
