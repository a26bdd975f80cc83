"""Parses from a CoNLL-U file."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluator.gender.ud.parser import Parse, UdSentence, UdToken
from evaluator.text_file import opened
from evaluator_serving.errors import InputError


def read_conllu(path: Path) -> Iterator[tuple[str, UdSentence]]:
    """Yield (text, words) of each sentence; the text is that of its `# text = …` comment, empty without one.

    Lines of multiword tokens (`3-4`) and empty nodes (`3.1`) are left out: their words have lines of their own.
    Raises InputError for a line that is not CoNLL-U.
    """
    text, tokens = "", []
    with opened(path, wanted="give a CoNLL-U file") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.rstrip("\r\n")
            if line.startswith("#"):
                key, _, value = line[1:].partition("=")
                if key.strip() == "text":
                    text = value.strip()
            elif line.strip():
                token = _token(line, f"{path}, line {number}")
                if token:
                    tokens.append(token)
            elif tokens:
                yield text, tuple(tokens)
                text, tokens = "", []
    if tokens:
        yield text, tuple(tokens)


def _token(line: str, where: str) -> UdToken | None:
    fields = line.split("\t")
    if len(fields) != 10:
        raise InputError(f"{where}: {len(fields)} tab-separated fields instead of 10: is this CoNLL-U?")
    if "-" in fields[0] or "." in fields[0]:
        return None
    if not (fields[0].isdigit() and fields[6].isdigit()):
        raise InputError(f"{where}: id {fields[0]!r} or head {fields[6]!r} is not a number: is this CoNLL-U?")
    return UdToken(
        id=int(fields[0]),
        text=fields[1],
        upos=fields[3],
        head=int(fields[6]),
        deprel=fields[7],
        feats="" if fields[5] == "_" else fields[5],
    )


class ConlluParser:
    """`Parser` that looks texts up in a CoNLL-U file: a text is the `# text` of a sentence, or begins with it."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InputError where it is not CoNLL-U."""
        self._path = path
        self._sentences = {" ".join(text.split()): sentence for text, sentence in read_conllu(path) if text}

    def fingerprint(self, language: str) -> str:
        """Identifies the file's content."""
        return "conllu-" + hashlib.sha256(self._path.read_bytes()).hexdigest()[:16]

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """Look the texts up. Raises InputError for one that is not in the file."""
        return [self._look_up(" ".join(text.split())) for text in texts]

    def _look_up(self, text: str) -> Parse:
        if not text:
            return ()
        if text in self._sentences:
            return (self._sentences[text],)
        # only the first sentence is read, so a file cut into sentences answers for a longer text as well
        for end in range(len(text) - 1, 0, -1):
            if text[end] == " " and text[:end] in self._sentences:
                return (self._sentences[text[:end]],)
        raise InputError(f"{self._path} has no parse of {text!r}: it needs a sentence with `# text = {text}`")
