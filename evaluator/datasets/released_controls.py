"""Race and profession controls drawn as the word-filling paper's released code draws them (`--protocol published`).

`evaluator.datasets.word_filling.drawn_controls` draws with better rules. Here a term may be found inside another word (Oman in
woman) or in the keyword, only its first occurrence is replaced, in the list's letter case, and the terms drawn may be equal to
each other and to the term itself.
"""

import random
from collections import Counter

import polars as pl

from evaluator.datasets.word_filling import DRAWS, GENERATED, SENTENCES, control_terms
from evaluator.vocabulary import Samples

_PUNCTUATION = '"!?.,'
"""Taken out of a keyword's brackets at its end. The released code goes through them in an arbitrary order, which makes a
difference for the brackets of one sentence of StereoSet; in this order it leaves all of them outside."""


def released_controls(source: Samples, bias_type: str) -> Samples:
    """Quadruples from StereoSet's intrasentence examples of one bias type, DRAWS of them an example, always the same.

    `source` is StereoSet's English file in the file's order of examples. Dropped and counted: other examples, sentences that
    don't differ in exactly one word or hold brackets, sentences without a listed term.
    """
    lists = control_terms(bias_type, stripped=False)
    wanted = source.frame.filter((pl.col("template") == "intrasentence") & (pl.col("bias_type") == bias_type))
    dropped = Counter({"StereoSet examples of another test or bias type": source.frame.height - wanted.height})
    rows: list[dict[str, object]] = []
    original = 0
    for example, sentences in wanted.select("example", "sentences").iter_rows():
        pair = _bracketed(sentences[0], sentences[1])
        if pair is None:
            dropped["the two sentences don't differ in exactly one word"] += 1
            continue
        term = _term(pair, lists)
        if term is None:
            dropped["no listed group term"] += 1
            continue
        terms = next(some for some in lists if term in some)
        draw = random.Random(pair[0])
        for drawn in [draw.choice(terms) for _ in range(DRAWS)]:
            quadruple = dict(zip(SENTENCES, (*pair, *(_replaced(sentence, term, drawn) for sentence in pair)), strict=True))
            terms_of = {"example": example, "original_term": term, "control_term": drawn}
            rows.append({"sample": len(rows), "original": original, **quadruple, **terms_of})
        original += 1
    return Samples(pl.DataFrame(rows, schema=GENERATED), source.sha256, dict(dropped), source.failures)


def _bracketed(first: str, second: str) -> tuple[str, str] | None:
    """Two sentences with brackets around the one word in which they differ; None where there isn't one."""
    words = first.split(), second.split()
    if len(words[0]) != len(words[1]) or any(sign in first + second for sign in "<>"):
        return None
    different = [i for i, (a, b) in enumerate(zip(*words, strict=True)) if a != b]
    if len(different) != 1:
        return None
    for side in words:
        marked = f"<{side[different[0]]}>"
        for sign in _PUNCTUATION:
            marked = marked.replace(f"{sign}>", f">{sign}")
        side[different[0]] = marked
    return " ".join(words[0]), " ".join(words[1])


def _term(pair: tuple[str, str], lists: list[list[str]]) -> str | None:
    """The longest listed term that both sentences hold, the first one of several."""
    texts = [sentence.lower() for sentence in pair]
    held = [term for terms in lists for term in terms if all(term.lower() in text for text in texts)]
    return max(held, key=len, default=None)


def _replaced(sentence: str, term: str, drawn: str) -> str:
    at = sentence.lower().index(term.lower())
    return sentence[:at] + drawn + sentence[at + len(term) :]
