"""Results go to stdout and may be cut off there: `evaluator scores RUN | head` is no error."""

import contextlib
import os
import sys

import click
from rich.text import Text


def write(text: str) -> None:
    """Write a whole result to stdout."""
    write_bytes(text.encode("utf8"))


def write_bytes(data: bytes) -> None:
    """Write a whole result, binary or UTF-8, to stdout; a reader that has gone away ends the program quietly."""
    stream = sys.stdout.buffer
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # else the interpreter complains once more when it closes stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def write_lines(lines: list[Text]) -> None:
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
