"""Read text files without guessing the encoding.

UTF-8 (with or without a byte-order mark) and UTF-16 with one are recognised. Any other encoding must be named.
"""

import codecs
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from evaluator_serving.errors import InputError

SAVE = "save the file as UTF-8"
NAME_IT = f"{SAVE}, or name its encoding (--encoding cp1250, cp1252, iso8859-2, …)"
"""Remedies for files whose encoding cannot, and can, be named by an option."""

SHOWN = 12
"""Bytes shown in a message on either side of an invalid byte."""

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def codec_of(start: bytes, path: Path, named: str | None = None) -> str:
    """The Python codec for a file with this beginning (at least four bytes); `named` is the encoding that the user gave.

    Raises InputError for an unknown encoding, or a byte-order mark of another one.
    """
    mark = next((codec for bom, codec in _MARKS.items() if start.startswith(bom)), None)
    if named is None:
        return mark or "utf-8"
    try:
        "".encode(named)
        codec = codecs.lookup(named).name
    except (LookupError, ValueError):
        raise InputError(f"{named!r} is not the name of a text encoding: use for example cp1250, cp1252 or iso8859-2") from None
    family = re.match(r"utf[_-]?(8|16|32)", codec)
    if mark is None:
        if codec in ("utf-16", "utf-32") and start[:4] not in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
            raise InputError(f"{path} has no byte-order mark: write --encoding {codec}-le or {codec}-be instead of {named}")
        return codec
    if not family or (family[1] == "8") != (mark == "utf-8-sig"):
        kind = shown(mark)
        raise InputError(f"{path} begins with the byte-order mark of {kind}, so it is not {named}: remove the encoding option")
    return codec if family[1] == "32" else mark


def shown(codec: str) -> str:
    """A codec's name in reports: UTF-8, UTF-16, cp1250."""
    return codec.removesuffix("-sig").upper() if codec.startswith("utf") else codec


def read_text(path: Path, remedy: str = SAVE, *, wanted: str, encoding: str | None = None) -> tuple[str, str]:
    """A file's text with its line breaks, and the sha256 of its bytes.

    Raises InputError for a missing file (ending in `wanted`) and for another encoding (ending in `remedy`).
    """
    content = _content(path, wanted)
    codec = codec_of(content[:4], path, encoding)
    return _decoded(content, codec, path, remedy), hashlib.sha256(content).hexdigest()


@contextmanager
def opened(path: Path, remedy: str = SAVE, *, wanted: str, encoding: str | None = None) -> Iterator[TextIO]:
    """Open a file for streaming, with its line breaks. Raises InputError as `read_text` does, also while reading."""
    try:
        with path.open("rb") as bare:
            codec = codec_of(bare.read(4), path, encoding)
        with path.open(encoding=codec, newline="") as file:
            yield file
    except UnicodeDecodeError:
        _decoded(_content(path, wanted), codec, path, remedy)
        raise
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: {wanted}") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: {wanted}") from None


def encoding_of(path: Path, encoding: str | None = None) -> str:
    """A file's encoding as named in reports."""
    with path.open("rb") as file:
        return shown(codec_of(file.read(4), path, encoding))


def no_nul(text: str, path: Path, line: int, remedy: str) -> None:
    """Raise InputError for the character NUL: the file is UTF-16 or UTF-32 without a byte-order mark, or not text."""
    if "\0" in text:
        raise InputError(
            f"{path}, line {line}: a byte is 00, as in UTF-16 without a byte-order mark, so it is not UTF-8: {remedy}"
        )


def _content(path: Path, wanted: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}: {wanted}") from None
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: {wanted}") from None


def _decoded(content: bytes, codec: str, path: Path, remedy: str) -> str:
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        line = _line(content[: error.start].decode(codec, "replace"))
        around = content[max(error.start - SHOWN, 0) : error.start + SHOWN]
        wrong = content[error.start : error.end].hex(" ")
        raise InputError(f"{path}, line {line}: not {shown(codec)} (bytes {wrong} in {around!r}): {remedy}") from None
    if "\0" in text:
        no_nul(text, path, _line(text[: text.index("\0")]), remedy)
    return text


def _line(before: str) -> int:
    """The line number (from 1) at the end of a text."""
    return 1 + len(re.findall(r"\r\n|\r|\n", before))
