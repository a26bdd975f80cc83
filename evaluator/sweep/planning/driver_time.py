"""Time that the driver of a sweep takes: one process on one core, whatever the number of devices.

The constants are from `benchmarks/driver_throughput.py` (GEST). Encoding is not among them: it is done by other processes.
"""

SECONDS_PER_REQUEST = 3e-5
"""To cut a request into a chunk, to send that and to write its answer."""
SECONDS_PER_MODEL = 0.5
"""To read what a model is, to start it and to record how it ended."""


def driver_seconds(requests: int, models: int) -> float:
    """CPU seconds of the driver for this many requests of all models together."""
    return SECONDS_PER_REQUEST * requests + SECONDS_PER_MODEL * models
