"""Which samples drive a rate: how much it moves without each of them. Pure."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from evaluator.measures.sampled import Sampled, left_out, moved

MOVES: dict[str, pl.DataType] = {
    "template": pl.String(),
    "group": pl.String(),
    "unit": pl.Int64(),
    "rate": pl.Float64(),
    "without": pl.Float64(),
    "move": pl.Float64(),
}
"""Columns of `moves`: the rate (of which template and group), what it is without the unit, and the difference of the two. Of
which column of the scores `unit` is a value, the blocks say (`Sampled.unit`)."""


def moves(blocks: Sequence[Sampled], measure: str, groups: Sequence[str | None], template: str | None = None) -> pl.DataFrame:
    """A row for each output of a measure and of one of these groups × unit that it rests on (columns MOVES).

    Raises LookupError where there is no such output.
    """
    frames = [pl.DataFrame(schema=MOVES)]
    found = False
    for block in blocks:
        wanted = [
            index
            for index, label in enumerate(block.labels)
            if label.measure == measure and label.group in groups and template in (None, label.template)
        ]
        if not wanted:
            continue
        found = True
        sums = np.stack([units.values.sum(axis=0) for units in block.strata])
        for place, units in enumerate(block.strata):
            if not len(units.values):
                continue
            whole, without = left_out(sums, place, units.values, block.statistic)
            rests = moved(whole, without)
            for index in wanted:
                move = without[:, index] - whole[index]
                if not rests[index]:
                    continue
                frames.append(
                    pl.DataFrame(
                        {
                            "template": [block.labels[index].template] * len(move),
                            "group": [block.labels[index].group] * len(move),
                            "unit": [int(str(name)) for name in units.ids],
                            "rate": [float(whole[index])] * len(move),
                            "without": without[:, index],
                            "move": move,
                        },
                        schema=MOVES,
                        nan_to_null=True,
                    )
                )
    if not found:
        raise LookupError(measure)
    return pl.concat(frames)
