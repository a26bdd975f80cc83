"""Units of a mean log ratio, and the exact conversions between them (method.md §0).

The released code of the papers takes log10 of each sample's ratio and then, for GEST, exp of the mean: what it prints
is ratio^(1/ln 10). Scores in this program are natural logarithms; a scale is chosen when a report is written.
"""

import math

import numpy as np
from numpy.typing import NDArray

from evaluator.vocabulary import Scale

LN10 = math.log(10)


def on_scale(log_ratio: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """A mean natural-log ratio as `ratio` e^x, `published` e^(x/ln 10), or `log10` x/ln 10; infinite on overflow."""
    if scale == "log10":
        return log_ratio / LN10
    with np.errstate(over="ignore"):
        return np.exp(log_ratio if scale == "ratio" else log_ratio / LN10)
