"""An engine that breaks where it is told to: `--engine tests.scoring.faulty:Faulty --extra fault=STAGE`."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.engine import DeviceKind, EngineOptions, Extra
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row, Workload
from evaluator_serving.transformers_engine.engine import TransformersEngine

TOKENS = 40
"""More than a probe of whether the model sees ahead has."""


class OddError(Exception):
    """An error that can't be made again from its arguments, as pickle would."""

    def __init__(self, first: str, *, second: str) -> None:
        super().__init__(f"{first} {second}")


def _break(what: str) -> None:
    if what.endswith("exit"):
        raise SystemExit("the library gave up")
    if what.endswith("memory"):
        raise MemoryError("no more of it")
    raise OddError("broken at", second=f"{what}\nand a second line")


class Faulty(TransformersEngine):
    """The transformers engine, broken at `load`, `verify` (the first rows that it scores), `score`, `close`, or at every row of
    `tokens` tokens (`row`; `row memory`: there is no memory for it).

    `refuse`: it can't load the model; `kill`: its process is killed once while it scores, the file `mark` says that it was;
    `hold`: it scores `calls` chunks, and goes on when the file `mark` is there; `touch`: it makes that file when it has loaded.
    """

    extra = (
        Extra("fault", "where it breaks"),
        Extra("tokens", "of which rows"),
        Extra("mark", "says that it broke already, or may go on", harmless=True),
        Extra("calls", "how many chunks it scores at once", harmless=True),
    )
    mended: ClassVar[bool] = False

    @classmethod
    def chunk_tokens(cls, parameters: int, device: DeviceKind) -> int:
        """More than one chunk of a tiny model."""
        return min(4096, super().chunk_tokens(parameters, device))

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        self._fault = str(options.extra.get("fault", ""))
        self._broken = int(options.extra.get("tokens", TOKENS))
        self._mark = Path(options.extra.get("mark", os.devnull))
        self._calls = 0
        if self._fault == "refuse":
            raise InputError("this model can't be loaded: take another one")
        if self._fault.startswith("load"):
            _break(self._fault)
        super().__init__(source, options, rows)
        self._most = int(options.extra.get("calls", 1))
        if self._fault == "touch":
            self._mark.touch()

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """The first call of many rows is the verification's, the second one scores the first chunk."""
        long = [index for index, row in enumerate(rows) if len(row.ids) == self._broken]
        if self._fault.startswith("row") and long and not self.mended:
            raise EngineError(f"row {long[0]}: broken", long[0], again=self._fault.endswith("memory"))
        if len(rows) == 1:  # whether the model sees ahead
            return super().score(rows)
        self._calls += 1
        if (self._fault.startswith("verify") and self._calls == 1) or (self._fault.startswith("score") and self._calls == 3):
            _break(self._fault)
        while self._fault == "hold" and self._calls > self._most and not self._mark.exists():
            time.sleep(0.02)
        if self._fault == "kill" and self._calls > 1 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(rows)

    def close(self) -> None:
        """Break, or end as usual."""
        if self._fault.startswith("close"):
            _break(self._fault)
        super().close()


def held(gate: Path) -> str:
    """The lines of a model in SWEEP.toml, each process of which scores two chunks and then waits for the file `gate`.

    The pool wants to have seen two before it believes in a replica's speed: a waiting one becomes slower and slower, and
    another one pays.
    """
    return f'engine = "tests.scoring.faulty:Faulty"\nextra = {{ fault = "hold", mark = "{gate}", calls = "3" }}\n'
