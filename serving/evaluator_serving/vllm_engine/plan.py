"""From a causal row to the fewest vLLM requests that answer its lookups exactly. Pure: no vLLM import.

vLLM computes logits where it needs them, and every way of asking covers only some positions of a row:

- at the prompt's last token, `logprob_token_ids` gives log P of any tokens;
- one position further, the same, if the row's own next token is forced by `allowed_token_ids` and two tokens are decoded;
- at every earlier position `prompt_logprobs=0` gives log P of the row's own next token, and of no other;
- with the V2 model runner (GPU), `prompt_logprob_token_ids` gives log P of any tokens at every earlier position.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluator_serving.packing import shared
from evaluator_serving.rows import Row

WIDTH = 128
"""Most token ids that vLLM scores at one position (its MAX_LOGPROB_TOKEN_IDS)."""

Source = Literal["prompt", "step"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a lookup's answer stands: in table `source`, at `line` and `column`.

    Tables of a query's answer: `prompt`, one line a position from `Query.start` on, columns as in `Query.grid` (one column,
    the row's own next token, without a grid); `step`, one line a decoded token, columns as in `Query.tokens`.
    """

    lookup: int
    source: Source
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Query:
    """One vLLM request for one row.

    Attributes:
        length: how many of the row's ids are the prompt.
        tokens: ids whose log P is wanted at every decoded position (`logprob_token_ids`).
        forced: the row's next id, decoded first so that the position after the prompt is read too; None for one step.
        prompt_scores: whether the prompt's own tokens are scored (`prompt_logprobs=0`).
        grid: ids to score at positions start, start + 1, …, length - 2 (`prompt_logprob_token_ids`); empty if not used.
        start: first position of the `prompt` table.
        cells: where this query answers lookups of the row.
    """

    length: int
    tokens: tuple[int, ...]
    forced: int | None
    prompt_scores: bool
    grid: tuple[tuple[int, ...], ...]
    start: int
    cells: tuple[Cell, ...]

    @property
    def steps(self) -> int:
        """Tokens to decode."""
        return 1 if self.forced is None else 2

    @property
    def first(self) -> int:
        """First position that is read. Tokens before it may come from the cache of another prompt: their scores, which vLLM
        gives for computed tokens only, aren't wanted."""
        return min((self.start + cell.line for cell in self.cells if cell.source == "prompt"), default=self.length - 1)


def plan(row: Row, *, grid: bool) -> list[Query]:
    """The fewest queries that answer `row`'s lookups. `grid` says whether `prompt_logprob_token_ids` can be used."""
    wanted, overflow = _by_position(row)
    if not wanted:
        return []
    queries = [_with_grid(wanted)] if grid else _without_grid(row, wanted)
    return queries + [_single(position, tokens) for position, tokens in overflow]


Wanted = dict[int, dict[int, list[int]]]
"""Position → token id → the lookups that ask for it (several only if a row asks twice)."""


def _by_position(row: Row) -> tuple[Wanted, list[tuple[int, dict[int, list[int]]]]]:
    """The row's lookups by position, at most WIDTH tokens each, and what is beyond that in portions of WIDTH."""
    found: Wanted = {}
    for index, (position, token) in enumerate(row.lookups):
        found.setdefault(position, {}).setdefault(token, []).append(index)
    wanted: Wanted = {}
    overflow = []
    for position, tokens in sorted(found.items()):
        items = list(tokens.items())
        wanted[position] = dict(items[:WIDTH])
        overflow += [(position, dict(items[i : i + WIDTH])) for i in range(WIDTH, len(items), WIDTH)]
    return wanted, overflow


def _cells(tokens: dict[int, list[int]], columns: Sequence[int], source: Source, line: int) -> list[Cell]:
    place = {token: column for column, token in enumerate(columns)}
    return [Cell(lookup, source, line, place[token]) for token, lookups in tokens.items() for lookup in lookups]


def _single(position: int, tokens: dict[int, list[int]]) -> Query:
    """Any tokens at one position: the prompt ends there."""
    columns = tuple(tokens)
    return Query(position + 1, columns, None, False, (), 0, tuple(_cells(tokens, columns, "step", 0)))


def _pair(row: Row, position: int, wanted: Wanted) -> Query:
    """Any tokens at `position` and `position + 1`: the prompt ends at the first, the row's next token is forced."""
    first, second = wanted[position], wanted[position + 1]
    columns = tuple(dict.fromkeys([*first, *second]))
    cells = _cells(first, columns, "step", 0) + _cells(second, columns, "step", 1)
    return Query(position + 1, columns, row.ids[position + 1], False, (), 0, tuple(cells))


def _with_grid(wanted: Wanted) -> Query:
    """Everything in one forward pass: earlier positions by a grid of token ids, the last one by the decoded token."""
    start, end = min(wanted), max(wanted)
    grid = tuple(tuple(wanted.get(position, ())) for position in range(start, end))
    cells = [c for p in range(start, end) if p in wanted for c in _cells(wanted[p], grid[p - start], "prompt", p - start)]
    columns = tuple(wanted[end])
    return Query(end + 1, columns, None, False, grid, start, (*cells, *_cells(wanted[end], columns, "step", 0)))


def _without_grid(row: Row, wanted: Wanted) -> list[Query]:
    """Positions that ask only for the row's own next token are read off one prompt, all others are ends of prompts."""
    end = max(wanted)
    own = {p for p, tokens in wanted.items() if p < end and set(tokens) == {row.ids[p + 1]}}
    if own == {end - 1} and _fits(wanted[end - 1], wanted[end]):
        own = set()  # forcing one token is cheaper than a vocabulary of logits at every prompt position
    queries = _ends(row, wanted, [p for p in wanted if p not in own])
    if not own:
        return queries
    # Scored prompts cost a vocabulary of logits a token: take the shortest that reaches beyond the last own position (the
    # query at the row's end always does).
    host = min((q for q in queries if q.length >= max(own) + 2), key=lambda q: q.length)
    scored = [cell for p in sorted(own) for cell in _cells(wanted[p], (row.ids[p + 1],), "prompt", p)]
    merged = Query(host.length, host.tokens, host.forced, True, (), 0, (*host.cells, *scored))
    return [merged if q is host else q for q in queries]


def _ends(row: Row, wanted: Wanted, positions: Iterable[int]) -> list[Query]:
    """One query per position, or per two neighbouring positions, from the row's end to its beginning."""
    queries = []
    rest = sorted(positions)
    while rest:
        last = rest.pop()
        if rest and rest[-1] == last - 1 and _fits(wanted[last - 1], wanted[last]):
            queries.append(_pair(row, rest.pop(), wanted))
        else:
            queries.append(_single(last, wanted[last]))
    return queries


def _fits(first: dict[int, list[int]], second: dict[int, list[int]]) -> bool:
    return len(first.keys() | second.keys()) <= WIDTH


def leaders_first(prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """An order of the prompts in which those that begin like an earlier one come last.

    vLLM finds a beginning in its cache only when it has been computed, not while it is.
    """
    leaders: list[int] = []
    followers: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda i: prompts[i]):
        known = leaders and 2 * shared(prompts[leaders[-1]], prompts[index]) >= len(prompts[index])
        (followers if known else leaders).append(index)
    return leaders + followers
