"""Sentence pairs from a corpus of articles: consecutive sentences, and sentences of different articles."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluator.text_file import opened
from evaluator_serving.errors import InputError

_END = ".!?…。！？"
_CLOSING = "\"'”’»)]"
_OPENING = "\"'“‘„«(¿¡["
_ABBREVIATIONS = frozenset(
    [
        *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "no", "vol", "fig", "al", "etc", "e.g", "i.e"),
        *("z.b", "d.h", "u.a", "bzw", "ca", "usw", "nr", "mme", "mlle", "av", "sra", "dña", "pág", "vb"),
    ]
)


def articles(paths: Sequence[Path]) -> Iterator[str]:
    """Articles of files and folders.

    `.jsonl` and `.json` files have one object with a field `text` per line. Other files are plain UTF-8 text with blank lines
    between articles. Files of a folder are read in alphabetical order. Raises InputError with file and line.
    """
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            yield from _json_lines(file) if file.suffix in (".jsonl", ".json") else _plain(file)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    with opened(file, wanted="give UTF-8 text or JSONL files") as handle:
        yield from enumerate(handle, start=1)


def _json_lines(file: Path) -> Iterator[str]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f'{file}, line {number}: not {{"text": …}} ({type(error).__name__}): correct it') from error
        if not isinstance(text, str):
            raise InputError(f"{file}, line {number}: text is not a string: correct it")
        yield text


def _plain(file: Path) -> Iterator[str]:
    article: list[str] = []
    for _, line in _lines(file):
        if line.strip():
            article.append(line)
        elif article:
            yield "".join(article)
            article = []
    if article:
        yield "".join(article)


def sentences(text: str) -> list[str]:
    """Split a text at line ends, and after `.`, `!`, `?`, `…` before a capital letter or digit.

    A full stop after a single letter or a common abbreviation does not end a sentence. Sufficient for training.
    """
    result = []
    for line in text.splitlines():
        start = 0
        for index, character in enumerate(line):
            if character in _END and (end := _sentence_end(line, start, index)):
                result.append(line[start:end])
                start = end
        result.append(line[start:])
    return [stripped for sentence in result if (stripped := sentence.strip())]


def _sentence_end(line: str, start: int, index: int) -> int:
    """End of the sentence with an end mark at `index`, 0 if the sentence continues."""
    end = index + 1
    while end < len(line) and line[end] in _CLOSING:
        end += 1
    rest = line[end:].lstrip()
    if not rest or end == len(line) - len(line[end:].lstrip()):  # nothing, or no space, follows
        return 0
    first = rest.lstrip(_OPENING)[:1]
    if not (first.isupper() or first.isdigit()):
        return 0
    word = line[start:index].split()[-1].strip(_OPENING).lower() if line[start:index].split() else ""
    if line[index] == "." and ((len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS):
        return 0
    return end


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """All sentence pairs of a corpus.

    Attributes:
        texts: sentences in the order of articles.
        article: [sentences] index of each sentence's article.
        firsts: indices of sentences that another sentence of the same article follows.
    """

    texts: tuple[str, ...]
    article: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, corpus: Sequence[Sequence[str]]) -> "SentencePairs":
        """The pairs of articles given as lists of sentences. Raises InputError if there are too few articles."""
        usable = [article for article in corpus if len(article) > 1]
        if len(usable) < 2:
            what = f"the corpus has {len(usable)} articles with two or more sentences"
            raise InputError(f"{what}: next-sentence pairs need at least two such articles")
        article = np.repeat(np.arange(len(usable)), [len(a) for a in usable])
        firsts = np.flatnonzero(article[:-1] == article[1:])
        return cls(tuple(text for a in usable for text in a), article, firsts)

    def __len__(self) -> int:
        """Pairs of one epoch, half of them consecutive."""
        return 2 * len(self.firsts)

    def epoch(self, seed: int, epoch: int) -> "Epoch":
        """All consecutive pairs and as many random ones, shuffled."""
        random = np.random.default_rng([seed, epoch])
        others = random.integers(len(self.texts), size=len(self.firsts))
        while len(clash := np.flatnonzero(self.article[others] == self.article[self.firsts])):
            others[clash] = random.integers(len(self.texts), size=len(clash))
        return Epoch(self, others, random.permutation(len(self)))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch's pairs: `others` [firsts] are random second sentences, `order` is a permutation of all pairs."""

    pairs: SentencePairs
    others: NDArray[np.int64]
    order: NDArray[np.int64]

    def batch(self, start: int, stop: int) -> tuple[list[str], list[str], list[int]]:
        """First texts, second texts and labels (1: consecutive) of the pairs start … stop − 1."""
        chosen = self.order[start:stop]
        which, label = chosen // 2, chosen % 2
        first = self.pairs.firsts[which]
        second = np.where(label == 1, first + 1, self.others[which])
        texts = self.pairs.texts
        return [texts[i] for i in first], [texts[i] for i in second], label.tolist()
