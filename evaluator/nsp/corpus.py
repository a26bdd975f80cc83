"""From a corpus of articles to sentence pairs: consecutive sentences, and sentences of different articles."""

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
    """Texts of the articles in files and folders.

    `.jsonl` and `.json` files have an object with a field `text` a line; other files are plain UTF-8 text in which a blank
    line ends an article. Folders are read in the order of their files' names. Raises InputError, naming file and line.
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
            raise InputError(f"{file}, line {number}: its text is no string: correct it")
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
    """Split a text at line ends, and after `.`, `!`, `?`, `…` where a capital letter or digit follows.

    A single letter or a common abbreviation before a full stop ends no sentence. Good enough to train on; no parser.
    """
    found = []
    for line in text.splitlines():
        start = 0
        for index, character in enumerate(line):
            if character in _END and (end := _sentence_end(line, start, index)):
                found.append(line[start:end])
                start = end
        found.append(line[start:])
    return [stripped for sentence in found if (stripped := sentence.strip())]


def _sentence_end(line: str, start: int, index: int) -> int:
    """Where the sentence with an end mark at `index` ends, 0 if it goes on."""
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
    """All pairs that a corpus gives.

    Attributes:
        texts: the sentences, article after article.
        article: [sentences] the article of each.
        firsts: indices of the sentences that are followed by another of their article.
    """

    texts: tuple[str, ...]
    article: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, corpus: Sequence[Sequence[str]]) -> "SentencePairs":
        """The pairs of articles given as lists of sentences. Raises InputError where there can be none."""
        kept = [article for article in corpus if len(article) > 1]
        if len(kept) < 2:
            raise InputError(
                f"the corpus has {len(kept)} articles of two sentences or more: next-sentence pairs need at least two"
            )
        article = np.repeat(np.arange(len(kept)), [len(a) for a in kept])
        firsts = np.flatnonzero(article[:-1] == article[1:])
        return cls(tuple(text for a in kept for text in a), article, firsts)

    def __len__(self) -> int:
        """Pairs of one epoch: as many consecutive as random ones."""
        return 2 * len(self.firsts)

    def epoch(self, seed: int, epoch: int) -> "Epoch":
        """One pass over all consecutive pairs, each with one random counterpart, in random order."""
        random = np.random.default_rng([seed, epoch])
        others = random.integers(len(self.texts), size=len(self.firsts))
        while len(clash := np.flatnonzero(self.article[others] == self.article[self.firsts])):
            others[clash] = random.integers(len(self.texts), size=len(clash))
        return Epoch(self, others, random.permutation(len(self)))


@dataclass(frozen=True, slots=True)
class Epoch:
    """Pairs in order: `others` [firsts] are the random counterparts, `order` a permutation of all pairs."""

    pairs: SentencePairs
    others: NDArray[np.int64]
    order: NDArray[np.int64]

    def batch(self, start: int, stop: int) -> tuple[list[str], list[str], list[int]]:
        """First texts, second texts, labels (1: consecutive) of the pairs at places start … stop − 1."""
        chosen = self.order[start:stop]
        which, label = chosen // 2, chosen % 2
        first = self.pairs.firsts[which]
        second = np.where(label == 1, first + 1, self.others[which])
        texts = self.pairs.texts
        return [texts[i] for i in first], [texts[i] for i in second], label.tolist()
