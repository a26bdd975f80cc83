"""Long names in narrow tables: shortened in the middle, so that different names stay different, with a legend below. Pure."""

from collections.abc import Iterable, Iterator, Mapping

CUT = "…"
LEAST = 5
"""Fewest characters of a shortened name: `a…b#2` still tells which one it is."""


def shortened(names: Iterable[str], room: int) -> dict[str, str]:
    """Each name to what is shown for it in `room` characters (at least LEAST): itself where it fits, or its beginning and end.

    No two names get the same: those that would are numbered, in the order given.
    """
    room = max(room, LEAST)
    every = list(dict.fromkeys(names))
    made = {name: name for name in every if len(name) <= room}
    taken = set(made)
    for name in every:
        if name in made:
            continue
        number = 1
        while (candidate := _cut(name, room, number)) in taken:
            number += 1
        made[name] = candidate
        taken.add(candidate)
    return {name: made[name] for name in every}


def _cut(name: str, room: int, number: int) -> str:
    """The beginning and the end of a name, more of the end (versions and sizes stand there), and a number from 2 on."""
    mark = f"#{number}" if number > 1 else ""
    letters = room - len(CUT) - len(mark)
    end = min(len(name), (letters + 1) // 2)
    return name[: max(0, letters - end)] + CUT + name[len(name) - end :] + mark


def legend(shown: Mapping[str, str]) -> Iterator[str]:
    """A line for each name that isn't shown in full."""
    for name, short in shown.items():
        if short != name:
            yield f"{short} = {name}"
