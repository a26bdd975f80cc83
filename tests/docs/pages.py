"""The commands that README and docs show: found, and made into arguments.

A page marks what isn't executed with a comment above its block, which readers don't see:

    <!-- unexecuted: evaluator data fetch: needs a network -->

that is the command's first words, and why. Of the block below it, commands that begin so must be valid and aren't run. Several
blocks need several comments.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

SHELL = {"", "sh", "bash", "console"}
"""Languages of blocks that may hold commands."""
BLOCK = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^ *```$", re.S | re.M)
MARK = re.compile(r"<!-- unexecuted: ([^:]+): ([^>]+?) -->")
INLINE = re.compile(r"`evaluator ([^`]+)`")
OPERATORS = {"&&", "|", ";"}


@dataclass(frozen=True)
class Shown:
    """One command: where it stands, its arguments behind `evaluator`, and why it isn't executed (empty where it is)."""

    page: Path
    line: int
    text: str
    arguments: tuple[str, ...]
    unexecuted: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}: {self.text}"


def shown(page: Path) -> Iterator[Shown]:
    """Every `evaluator` command of a page. Raises ValueError for a mark that no command of its block begins with."""
    text = page.read_text(encoding="utf8")
    for block in BLOCK.finditer(text):
        if block[2] not in SHELL:
            continue
        marks = _marks(text[: block.start()])
        used = set()
        first = text[: block.start(3)].count("\n") + 1
        for number, line in _joined(block[3]):
            if "evaluator" not in line:
                continue
            for words in command_lines(line):
                why = next((mark for mark in marks if " ".join(words).startswith(mark)), None)
                used.add(why)
                if words[0] == "evaluator":
                    yield Shown(page, first + number, " ".join(words), tuple(words[1:]), marks[why] if why else "")
        if unused := set(marks) - used:
            raise ValueError(f"{page}:{first}: no command of the block begins with {', '.join(unused)}")


def inline(page: Path) -> Iterator[Shown]:
    """Every `evaluator …` in the middle of a text; often the beginning of a command only."""
    text = page.read_text(encoding="utf8")
    for found in INLINE.finditer(BLOCK.sub(_blank, text)):
        words = found[1].split()
        yield Shown(page, text[: found.start()].count("\n") + 1, f"evaluator {found[1]}", tuple(words))


def _blank(block: re.Match[str]) -> str:
    """As long, so that places stay."""
    return re.sub(r"[^\n]", " ", block[0])


def _marks(before: str) -> dict[str, str]:
    """Of the comments right above a block: a command's beginning → why it isn't executed."""
    found: dict[str, str] = {}
    for line in reversed(before.rstrip().splitlines()):
        if not (mark := MARK.fullmatch(line.strip())):
            break
        found[mark[1]] = mark[2]
    return found


def _joined(block: str) -> Iterator[tuple[int, str]]:
    """Lines with their number in the block, those that end in a backslash joined to the next."""
    begun, at = "", 0
    for number, line in enumerate(block.splitlines()):
        at = at if begun else number
        begun += line.rstrip()
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        yield at, begun
        begun = ""


def command_lines(line: str) -> Iterator[list[str]]:
    """The commands of a line, without a prompt, a comment, settings of the environment and redirections."""
    line = re.split(r"(?:^|\s)#\s", line.removeprefix("$ "), maxsplit=1)[0]
    split = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    split.whitespace_split, split.commenters = True, ""
    words: list[str] = []
    redirected = False
    for word in [*split, ";"]:
        if word in OPERATORS:
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []
        elif word in (">", ">>", "<"):
            redirected = True
        elif redirected:
            redirected = False
        else:
            words.append(word)
