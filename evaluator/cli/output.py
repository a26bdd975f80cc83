"""Results go to stdout and may be cut off there: `evaluator scores RUN | head` is no error."""

import contextlib
import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from evaluator import logs
from evaluator_serving.errors import in_words

if TYPE_CHECKING:
    import polars as pl
    from rich.text import Text


UNKNOWN = "backslashreplace"
"""What becomes of a character that a terminal can't show: `\\u2026`, as Python's own error messages do it."""


def take_every_character() -> None:
    """Let stdout and stderr take every character, whatever the locale: called once, before any command runs.

    What isn't a terminal (a file, a pipe) gets UTF-8, so that a result has the same bytes on every machine, as a program that
    reads it expects; a terminal keeps its encoding.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors=UNKNOWN)


AFTER = 0.8
"""Seconds after which a command says that it is at work."""


@contextlib.contextmanager
def sign_of_life() -> Iterator[None]:
    """On a terminal a line on stderr where a command takes longer than a moment: importing and reading print nothing else."""
    if not sys.stderr.isatty():
        yield
        return
    # No ellipsis: click takes an ASCII terminal for one of UTF-8.
    timer = threading.Timer(AFTER, lambda: logs.say("evaluator: working ..."))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write(text: str) -> None:
    """Write a whole result to stdout."""
    write_bytes(text.encode(sys.stdout.encoding if sys.stdout.isatty() else "utf-8", UNKNOWN))


def write_bytes(data: bytes) -> None:
    """Write a whole result, binary or encoded, to stdout; a reader that has gone away ends the program quietly."""
    stream = sys.stdout.buffer
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # else the interpreter complains once more when it closes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def json_text(rows: "pl.DataFrame") -> str:
    """Rows as a JSON array with one object per row, nothing rounded."""
    return json.dumps(rows.to_dicts(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def write_lines(lines: "list[Text]") -> None:
    """Write styled lines: in colour on a terminal, plain elsewhere; never wrapped."""
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console(soft_wrap=True)
        for line in lines:
            console.print(line)
    else:
        write("".join(f"{line.plain}\n" for line in lines))


def clock(seconds: float) -> str:
    """A duration as hours:minutes:seconds, however many hours."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def tell(errors: Mapping[str, Exception]) -> None:
    """Say on stderr which models failed and why; with --debug also where."""
    debug = click.get_current_context().find_root().params.get("debug")
    for name, error in errors.items():
        if debug:
            logs.say("".join(traceback.format_exception(error)).rstrip(), "error")
        logs.say(f"evaluator: {name} failed: {in_words(error)}", "error")
