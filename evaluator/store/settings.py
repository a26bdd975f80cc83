"""Settings of the store that environment variables change."""

import math
import os

from evaluator_serving.errors import InputError


def seconds(variable: str, default: float, *, least: float) -> float:
    """Seconds that an environment variable sets. Raises InputError for anything else."""
    try:
        value = float(os.environ.get(variable, default))
        if not math.isfinite(value):
            raise ValueError(value)
    except ValueError:
        raise InputError(f"{variable} is not a number of seconds: {os.environ[variable]!r}") from None
    return max(least, value)
