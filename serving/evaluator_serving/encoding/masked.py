"""Masked requests: candidates in a text's slots, read at masks (method.md §1.1, §2, §3)."""

from evaluator_serving.encoding.text import TextTokenizer, Tokens, check_different, check_text
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Masked
from evaluator_serving.rows import Coverage, EncodedCandidate, Read, Row


def encode(
    request: Masked, text: TextTokenizer, mask_id: int | None = None
) -> tuple[list[Row], list[EncodedCandidate], Coverage]:
    """Rows of a masked request; see `Masked` for what each method asks. `mask_id` is the tokenizer's own mask if None."""
    if request.method == "single_greedy":
        raise InputError("the single_greedy method is for encoder-decoder models")
    mask_id = text.mask_id if mask_id is None else mask_id
    filled = [_fill(request.parts, fillers, text) for fillers in request.candidates]
    words = [tuple(tuple(tokens.ids[i] for i in slot) for slot in slots) for tokens, slots in filled]
    check_different(request.candidates, words)
    coverage = text.coverage(filled[0][0].ids) if filled else Coverage()
    if request.method == "positional":
        return *_positional(filled, mask_id), coverage
    one = {"sequential": _sequential, "joint": _joint, "single": _single}[request.method]
    rows: list[Row] = []
    candidates = []
    for tokens, slots in filled:
        inputs, ids = one(tokens, slots, mask_id)
        reads = tuple(Read(len(rows) + r, lookup) for r, row in enumerate(inputs) for lookup in range(len(row.lookups)))
        rows += inputs
        candidates.append(EncodedCandidate(ids, reads))
    return rows, candidates, coverage


Slots = tuple[tuple[int, ...], ...]
"""Token positions of each slot's filler."""


def _fill(parts: tuple[str, ...], fillers: tuple[str, ...], text: TextTokenizer) -> tuple[Tokens, Slots]:
    """Tokenize the text with a candidate in its slots, and find the fillers' tokens by their characters."""
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


def _sequential(tokens: Tokens, slots: Slots, mask: int) -> tuple[list[Row], tuple[int, ...]]:
    flat = tuple(i for slot in slots for i in slot)
    rows = [Row("masked", _masked(tokens, flat[j:], mask), ((at, tokens.ids[at]),)) for j, at in enumerate(flat)]
    return rows, tuple(tokens.ids[at] for at in flat)


def _joint(tokens: Tokens, slots: Slots, mask: int) -> tuple[list[Row], tuple[int, ...]]:
    flat = tuple(i for slot in slots for i in slot)
    row = Row("masked", _masked(tokens, flat, mask), tuple((at, tokens.ids[at]) for at in flat))
    return [row], tuple(tokens.ids[at] for at in flat)


def _single(tokens: Tokens, slots: Slots, mask: int) -> tuple[list[Row], tuple[int, ...]]:
    """Every slot holds its filler's first j tokens and one mask for the rest, if there is a rest; the first is read."""
    rows = []
    for j, at in enumerate(slots[0]):
        masks = {slot[j] for slot in slots if j < len(slot)}
        dropped = {i for slot in slots for i in slot[j + 1 :]}
        ids = tuple(mask if i in masks else t for i, t in enumerate(tokens.ids) if i not in dropped)
        # Nothing is dropped before the first slot, so its positions stay what they were.
        rows.append(Row("masked", ids, ((at, tokens.ids[at]),)))
    return rows, tuple(tokens.ids[at] for at in slots[0])


def _positional(filled: list[tuple[Tokens, Slots]], mask: int) -> tuple[list[Row], list[EncodedCandidate]]:
    """Compare two candidates' ids position by position over the shorter's length, special tokens included."""
    if len(filled) != 2:
        raise InputError(f"the positional method compares two candidates, not {len(filled)}")
    (first, _), (second, _) = filled
    pairs = zip(first.ids, second.ids, strict=False)  # unequal lengths are the method's very point
    differ = tuple(i for i, (a, b) in enumerate(pairs) if a != b)
    if not differ:
        raise InputError("both candidates become the same tokens")
    rows = [
        Row("masked", _masked(tokens, differ, mask), tuple((i, tokens.ids[i]) for i in differ)) for tokens in (first, second)
    ]
    reads = [tuple(Read(r, lookup) for lookup in range(len(differ))) for r in range(2)]
    return rows, [
        EncodedCandidate(tuple(tokens.ids[i] for i in differ), read)
        for tokens, read in zip((first, second), reads, strict=True)
    ]
