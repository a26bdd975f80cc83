"""Masked requests: candidates in a text's slots, read at masks (method.md §1.1, §2, §3)."""

import itertools
from collections.abc import Iterable, Sequence

from evaluator_serving.encoding.text import TextTokenizer, Tokens, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import SENTINEL, Masked
from evaluator_serving.rows import Coverage, EncodedCandidate, Row, reads_of


def encode(request: Masked, text: TextTokenizer, sentinel: bool = False) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """Rows of a masked request; see `Masked` for the methods.

    The mask is the tokenizer's mask token, or T5's first sentinel if `sentinel`.
    """
    mask_id = text.sentinel_id if sentinel else text.mask_id
    if request.method == "one_token":
        return _one_token(request, text, mask_id)
    if request.method == "written":
        return _written(request, text, SENTINEL if sentinel else text.mask_text, mask_id)
    if request.method in ("words", "unmasked"):
        return _texts(request, text, mask_id if request.method == "words" else None)
    filled = [_fill(request.parts, fillers, text) for fillers in request.candidates]
    words = [tuple(tuple(tokens.ids[i] for i in slot) for slot in slots) for tokens, slots in filled]
    check_different(request.candidates, words)
    coverage = text.coverage(filled[0][0].ids) if filled else Coverage()
    if request.method == "positional":
        return *_positional([tokens for tokens, _ in filled], mask_id), coverage
    one = {"sequential": _sequential, "joint": _joint, "single": _single}[request.method]
    return *_gathered(one(tokens, slots, mask_id) for tokens, slots in filled), coverage


Asked = tuple[list[Row], tuple[int, ...]]
"""A candidate's rows, whose lookups in order are its tokens, and the tokens' ids."""


def _gathered(asked: Iterable[Asked]) -> tuple[list[Row], list[EncodedCandidate]]:
    rows: list[Row] = []
    candidates = []
    for inputs, ids in asked:
        reads = [reads_of(len(rows) + r, len(row.lookups)) for r, row in enumerate(inputs)]
        rows += inputs
        candidates.append(EncodedCandidate(ids, tuple(itertools.chain.from_iterable(reads))))
    return rows, candidates


Slots = tuple[tuple[int, ...], ...]
"""Token positions of each slot's filler."""


def _fill(parts: tuple[str, ...], fillers: tuple[str, ...], text: TextTokenizer) -> tuple[Tokens, Slots]:
    """Tokenize the text with a candidate in its slots, and locate the fillers' tokens by character offsets."""
    if len(parts) != len(fillers) + 1 or not fillers:
        raise InputError(f"{len(parts) - 1} slots, but a candidate of {len(fillers)} words")
    spans = []
    whole = parts[0]
    for filler, after in zip(fillers, parts[1:], strict=True):
        check_text(filler, "candidate")
        spans.append((len(whole), len(whole) + len(filler)))
        whole += filler + after
    tokens = text.tokens(whole)
    slots = tuple(text.slot(tokens, whole, start, end) for start, end in spans)
    flat = [i for slot in slots for i in slot]
    if len(flat) != len(set(flat)):
        raise InputError("two slots share one token: put a space between them")
    return tokens, slots


def _masked(tokens: Tokens, positions: tuple[int, ...], mask: int) -> tuple[int, ...]:
    hidden = set(positions)
    return tuple(mask if i in hidden else token for i, token in enumerate(tokens.ids))


def _sequential(tokens: Tokens, slots: Slots, mask: int) -> Asked:
    flat = tuple(i for slot in slots for i in slot)
    rows = [Row("masked", _masked(tokens, flat[j:], mask), ((at, tokens.ids[at]),)) for j, at in enumerate(flat)]
    return rows, tuple(tokens.ids[at] for at in flat)


def _joint(tokens: Tokens, slots: Slots, mask: int) -> Asked:
    flat = tuple(i for slot in slots for i in slot)
    row = Row("masked", _masked(tokens, flat, mask), tuple((at, tokens.ids[at]) for at in flat))
    return [row], tuple(tokens.ids[at] for at in flat)


def _single(tokens: Tokens, slots: Slots, mask: int) -> Asked:
    """Each slot has the first j tokens of its filler and one mask for the rest, if any; the first mask is read."""
    rows = []
    for j, at in enumerate(slots[0]):
        masks = {slot[j] for slot in slots if j < len(slot)}
        dropped = {i for slot in slots for i in slot[j + 1 :]}
        ids = tuple(mask if i in masks else t for i, t in enumerate(tokens.ids) if i not in dropped)
        # Nothing is dropped before the first slot, so its positions stay what they were.
        rows.append(Row("masked", ids, ((at, tokens.ids[at]),)))
    return rows, tuple(tokens.ids[at] for at in slots[0])


def _written(request: Masked, text: TextTokenizer, mark: str, mask: int) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    asked = [_word_written(request.parts, fillers, text, mark, mask) for fillers in request.candidates]
    check_different(request.candidates, [pieces for _, pieces in asked])
    whole = request.parts[0] + "".join(word + part for word, part in zip(request.candidates[0], request.parts[1:], strict=True))
    return *_gathered(asked), text.coverage(text.tokens(whole).ids)


def _word_written(parts: tuple[str, ...], fillers: tuple[str, ...], text: TextTokenizer, mark: str, mask: int) -> Asked:
    """A word's tokens in order, each read at the first mask of a newly tokenized text.

    If a space belongs to the following word (as with RoBERTa, for which the released code was not made), a word keeps it, and
    is filled in place if it is a separate word.
    """
    word = fillers[0]
    check_text(word, "candidate")
    spaced = not text.puts_space_in_front()
    if spaced and not any(before[-1:].isalnum() or after[:1].isalnum() for before, after in itertools.pairwise(parts)):
        return _single(*_fill(parts, fillers, text), mask)
    lead = " " if spaced and parts[0].endswith(" ") else ""
    pieces = text.ids(lead + word)
    text.check_word(word, pieces)
    rows = []
    for j, piece in enumerate(pieces):
        begun = text.decode(pieces[:j])
        stretches = [p.removesuffix(lead) + begun if p.endswith(lead) else p + begun.removeprefix(lead) for p in parts[:-1]]
        ids = text.marked(mark.join([*stretches, parts[-1]]), mask, count=len(fillers))
        if ids.count(mask) != len(fillers):
            raise InputError(f"{mark!r} beside {word!r} is not tokenized as the mask")
        at = ids.index(mask)
        rows.append(Row("masked", ids, ((at, piece),)))
    return rows, pieces


def _positional(texts: Sequence[Tokens], mask: int) -> tuple[list[Row], list[EncodedCandidate]]:
    """Compare two candidates' ids by position over the shorter's length, including special tokens."""
    if len(texts) != 2:
        raise InputError(f"the positional method compares two candidates, not {len(texts)}")
    first, second = texts
    pairs = zip(first.ids, second.ids, strict=False)  # unequal lengths are the method's very point
    differ = tuple(i for i, (a, b) in enumerate(pairs) if a != b)
    if not differ:
        raise InputError("both candidates have the same tokens")
    return _gathered(
        (
            [Row("masked", _masked(tokens, differ, mask), tuple((i, tokens.ids[i]) for i in differ))],
            tuple(tokens.ids[i] for i in differ),
        )
        for tokens in texts
    )


def texts(request: Masked) -> list[str]:
    """The whole text with each candidate in its slots."""
    return ["".join(itertools.chain(*zip(request.parts, (*words, ""), strict=False))) for words in request.candidates]


def _filled(request: Masked, text: TextTokenizer) -> list[Tokens]:
    return [text.tokens(whole) for whole in texts(request)]


def _texts(request: Masked, text: TextTokenizer, mask: int | None) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """All tokens of whole texts: each masked together with the later ones of its word, or without masks."""
    whole = _filled(request, text)
    own = [tuple(i for i, special in enumerate(tokens.special) if not special) for tokens in whole]
    for words, places in zip(request.candidates, own, strict=True):
        if not places:
            raise InputError(f"{' … '.join(words)!r} yields no token")
    asked = (
        _word_by_word(tokens, at, mask) if mask is not None else _as_it_is(tokens, at)
        for tokens, at in zip(whole, own, strict=True)
    )
    return *_gathered(asked), sum((text.coverage(tokens.ids) for tokens in whole), Coverage())


def _word_by_word(tokens: Tokens, own: tuple[int, ...], mask: int) -> Asked:
    rows = []
    for at in own:
        word = tokens.words[at]
        hidden = tuple(i for i in own if i == at or (i > at and word is not None and tokens.words[i] == word))
        rows.append(Row("masked", _masked(tokens, hidden, mask), ((at, tokens.ids[at]),)))
    return rows, tuple(tokens.ids[at] for at in own)


def _as_it_is(tokens: Tokens, own: tuple[int, ...]) -> Asked:
    return [Row("masked", tokens.ids, tuple((at, tokens.ids[at]) for at in own))], tuple(tokens.ids[at] for at in own)


def _one_token(request: Masked, text: TextTokenizer, mask: int) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    texts = _filled(request, text)
    if len(texts) != 2:
        raise InputError(f"the one_token method compares two candidates, not {len(texts)}")
    coverage = text.coverage(texts[0].ids)
    first, second = (tokens.ids for tokens in texts)
    differ = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    if len(first) != len(second) or len(differ) != 1:
        return [], [EncodedCandidate((), ()), EncodedCandidate((), ())], coverage
    for words, tokens in zip(request.candidates, texts, strict=True):
        text.check_word(" … ".join(words), [tokens.ids[differ[0]]])
    return *_positional(texts, mask), coverage
