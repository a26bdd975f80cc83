"""Beginnings that the prompts of a batch share (a question about one sentence, its answers in several orders). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluator_serving.packing import shared

LEAST = 8
"""Tokens that prompts must have in common to be computed together."""
PAYS = 0.8
"""Of the padded tokens of a batch those that may be left at most, or it isn't worth its second pass."""


@dataclass(frozen=True, slots=True)
class Beginnings:
    """The distinct beginnings of a batch's prompts, and for each prompt which of them is its own; something follows on it."""

    texts: tuple[tuple[int, ...], ...]
    of: tuple[int, ...]

    def length(self, prompt: int) -> int:
        """Tokens of a prompt's beginning."""
        return len(self.texts[self.of[prompt]])


def beginnings(prompts: Sequence[tuple[int, ...]]) -> Beginnings | None:
    """What is worth computing once; None where prompts share too little."""
    groups: list[list[int]] = []
    lengths: list[int] = []
    for at in sorted(range(len(prompts)), key=lambda at: prompts[at]):
        ids = prompts[at]
        if groups:
            common = min(lengths[-1], shared(prompts[groups[-1][0]], ids), len(ids) - 1)
            if common >= max(LEAST, len(ids) // 2):
                groups[-1].append(at)
                lengths[-1] = common
                continue
        groups.append([at])
        lengths.append(len(ids) - 1)
    longest = max((length for group, length in zip(groups, lengths, strict=True) if len(group) > 1), default=0)
    lengths = [min(length, longest) for length in lengths]
    of = [0] * len(prompts)
    for number, group in enumerate(groups):
        for at in group:
            of[at] = number
    rest = max(len(ids) - lengths[of[at]] for at, ids in enumerate(prompts))
    left = len(groups) * longest + len(prompts) * rest
    if not longest or left > PAYS * len(prompts) * max(map(len, prompts)):
        return None
    return Beginnings(tuple(prompts[group[0]][:n] for group, n in zip(groups, lengths, strict=True)), tuple(of))
