"""An engine that waits, so that a test can do something to a sweep while it runs, however busy the machine is."""

import time
from collections.abc import Sequence
from pathlib import Path

from evaluator_serving.checks.verify import ROWS
from evaluator_serving.engine import EngineOptions, Extra
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row, Workload
from evaluator_serving.transformers_engine.engine import Numbers, TransformersEngine

CHUNKS = 2
"""So many the pool wants to have seen before it believes in a replica's speed: a waiting one becomes slower and slower, and
another one pays."""


class HeldEngine(TransformersEngine):
    """The transformers engine, whose every process scores a few chunks and then waits until the file `gate` is there."""

    extra = (Extra("gate", "the file that is waited for", harmless=True),)

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        self._gate = Path(options.extra["gate"])
        self._chunks = 0
        super().__init__(source, options, rows)

    def score(self, rows: Sequence[Row]) -> list[Numbers]:
        """As the transformers engine does. The few rows that an engine is verified with are no chunk."""
        self._chunks += len(rows) > 2 * ROWS
        while self._chunks > CHUNKS and not self._gate.exists():
            time.sleep(0.05)
        return super().score(rows)


def held(gate: Path) -> str:
    """The lines of a model in SWEEP.toml."""
    return f'engine = "tests.sweep.held_engine:HeldEngine"\nextra = {{ gate = "{gate}" }}\n'
