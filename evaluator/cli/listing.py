"""What `evaluator tasks` and `evaluator engines` share: the program's own, then those of plug-ins, as lines or JSON."""

import json
import shutil
import sys
import textwrap
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
        lines = [line for one in found for line in shown(one)]
        width = shutil.get_terminal_size().columns
        click.echo(
            "\n".join(part for line in lines for part in fitted(line, width)) if sys.stdout.isatty() else "\n".join(lines)
        )
    for line in refused():
        click.echo(line, err=True)


def fitted(line: str, width: int) -> list[str]:
    """A line as lines of a terminal of this width, the further ones indented more: between words, never within one."""
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
