"""A model replica: the Ray actor that holds one loaded engine."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from evaluator.run.score import Scored, score_chunk
from evaluator_serving.engine import Engine, EngineOptions, open_engine
from evaluator_serving.errors import EngineError, InputError, in_words
from evaluator_serving.models import ModelSource
from evaluator_serving.rows import Chunk, Row, Workload


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn any error, and a library's attempt to end the process, into one that says it in a line.

    What else an engine throws may not survive the way to the driver.
    """
    try:
        yield
    except (InputError, EngineError):
        raise
    except (Exception, SystemExit) as error:
        raise EngineError(in_words(error)) from error


class Replica:
    """One loaded model. Made into a Ray actor by `pool`; its methods run one after the other, and raise as `told` says."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    @told()
    def load(
        self,
        engine: str,
        source: ModelSource,
        options: EngineOptions,
        rows: tuple[Row, ...],
        workload: Workload | None,
        verify: bool,
    ) -> dict[str, Any]:
        """Load the engine, sized for the whole run, and verify it on some of its rows. Returns facts for the run's record."""
        self._engine = open_engine(engine, source, options, rows, workload)
        facts: dict[str, Any] = {
            "engine_details": self._engine.describe().details,
            "device_kind": self._engine.device_kind,
            "share_prefixes": self._engine.share_prefixes,
            "pid": os.getpid(),
        }
        if verify and engine != "transformers":
            from evaluator_serving.verify import verify_engine

            facts["verified"] = str(verify_engine(self._engine, source, options, rows))
        elif engine != "transformers":
            facts["verified"] = False
        return facts

    @told()
    def score(self, chunk: Chunk) -> Scored:
        """Score one chunk."""
        assert self._engine is not None, "load comes first"
        return score_chunk(self._engine, chunk)


def read_ahead(path: str) -> int:
    """Read a model's files so that they are in this node's page cache when they are loaded. Returns bytes read."""
    total = 0
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        if name.endswith((".safetensors", ".bin", ".gguf")) and os.path.isfile(full):
            with open(full, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                while block := file.read(1 << 24):
                    total += len(block)
    return total
