"""Score chunks with one engine and store what comes out. The same steps run in this process and in a Ray actor."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluator_serving.answers import Answer, assemble
from evaluator_serving.engine import Engine
from evaluator_serving.memory import peak_memory
from evaluator_serving.rows import Chunk


@dataclass(frozen=True, slots=True)
class Scored:
    """A chunk's answers and what they took (seconds, peak bytes of host and device memory so far)."""

    answers: tuple[Answer, ...]
    seconds: float
    rows: int
    tokens: int
    host_memory: int
    device_memory: int

    def timing(self, model: str, worker: str) -> dict[str, Any]:
        """The row for RUN/timings."""
        return {
            "model": model,
            "worker": worker,
            "finished": time.time(),
            "requests": len(self.answers),
            "rows": self.rows,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "host_memory": self.host_memory,
            "device_memory": self.device_memory,
        }


def start_record(
    replica: int, where: str, placement: Mapping[str, Any], seconds: Mapping[str, float], *, reused: bool = False
) -> dict[str, Any]:
    """What run.json says of the start of a replica: on which machines and devices, and what it took by part."""
    return {
        "replica": replica,
        "on": where,
        "placement": dict(placement),
        "reused_process": reused,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def _device_memory() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.max_memory_allocated()) if torch is not None and torch.cuda.is_available() else 0


def score_chunk(engine: Engine, chunk: Chunk) -> Scored:
    """Score one chunk. EngineError carries the index of the merged row at fault, if known."""
    begun = time.perf_counter()
    values = engine.score(chunk.merged.rows)
    seconds = time.perf_counter() - begun
    return Scored(
        answers=tuple(assemble(chunk, values)),
        seconds=seconds,
        rows=len(chunk.merged.rows),
        tokens=chunk.tokens,
        host_memory=peak_memory(),
        device_memory=_device_memory(),
    )


def requests_of_row(chunk: Chunk, row: int) -> list[str]:
    """Ids of the chunk's requests that read from merged row `row`."""
    return [
        item.request
        for item, spots in zip(chunk.encoded, chunk.merged.places, strict=True)
        if any(index == row for index, _ in spots)
    ]
