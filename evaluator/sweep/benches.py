"""Measurements of `evaluator bench` on this hardware, as plans use them: kept in the cache folder, a file each.

A plan's own table of speeds knows data sheets; a measurement knows this machine, this engine and these lengths of sentences.
"""

import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluator.store.files import read_json
from evaluator.sweep.hardware import Fleet, gpus
from evaluator_serving.cache import cache_dir, remember_json
from evaluator_serving.memory import usable_cores

KIND = "bench"
"""What a record of a bench says that it is."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one device is: a GPU by its name, else the processor.

    Attributes:
        kind: `cuda` or `cpu`; name: the card's or the processor's; cores: of the machine that may be used.
    """

    kind: str
    name: str
    cores: int

    @property
    def key(self) -> str:
        """A folder's name for it."""
        cores = f"-{self.cores}-cores" if self.kind == "cpu" else ""
        return re.sub(r"[^\w.-]+", "-", f"{self.kind}-{self.name}{cores}").strip("-")

    @classmethod
    def here(cls) -> "Hardware":
        """This machine's first GPU, or its processor."""
        found = gpus()
        return cls("cuda", found[0].name, usable_cores()) if found else cls.processor()

    @classmethod
    def processor(cls) -> "Hardware":
        """This machine's processor."""
        return cls("cpu", _processor(), usable_cores())


def _processor() -> str:
    """Its name, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return (found[1] if found else platform.processor() or platform.machine()).strip()


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """What one engine reached with one model.

    Attributes:
        engine, dtype: as in a run; threads: of its process, 0 on a GPU.
        parameters: of the model; weights: bytes of them.
        tokens_s: forward tokens a second, with the writing of answers.
        process: seconds from the start of a process until it can load a model.
        first, next: seconds to load and verify a process's first model, and one after it.
        when: of the measurement.
    """

    engine: str
    dtype: str
    threads: int
    parameters: int
    weights: int
    tokens_s: float
    process: float
    first: float
    next: float
    when: str


def folder() -> Path:
    """Where benches are kept."""
    return cache_dir() / "benches"


def keep(record: Mapping[str, Any]) -> Path:
    """Store a bench's record with those of the same hardware."""
    hardware = Hardware(**record["hardware"])
    made = folder() / hardware.key / f"{re.sub(r'[^0-9TZ]', '', record['time'])}-{os.getpid()}.json"
    remember_json(made, record)
    return made


def measured_in(record: Mapping[str, Any]) -> Iterable[MeasuredSpeed]:
    """What plans can use of a bench's record: this program's own engines that ran."""
    model = record["model"]
    for result in record["ways"]:
        if "error" in result or not result.get("start"):
            continue
        start = result["start"]
        one = MeasuredSpeed(
            engine=result["engine"],
            dtype=result["dtype"],
            threads=int(result["threads"]) if record["hardware"]["kind"] == "cpu" else 0,
            parameters=int(model["parameters"]),
            weights=int(model["weights"]),
            tokens_s=float(result["planning_tokens_s"]),
            process=float(start["process"]),
            first=float(start["first"]),
            next=float(start["next"]),
            when=str(record["time"]),
        )
        if min(one.parameters, one.tokens_s) > 0 and all(map(math.isfinite, (one.tokens_s, one.process, one.first, one.next))):
            yield one


@dataclass(frozen=True, slots=True)
class Rates:
    """All that was measured on one kind of hardware, the newest first for what was measured several times."""

    measured: tuple[MeasuredSpeed, ...] = ()

    @classmethod
    def of(cls, hardware: Hardware) -> "Rates":
        """Those that are kept. What can't be read is passed over."""
        found: dict[tuple[Any, ...], MeasuredSpeed] = {}
        for file in sorted((folder() / hardware.key).glob("*.json"), reverse=True):
            try:
                record = read_json(file)
                if record.get("kind") != KIND or record.get("format") != FORMAT:
                    continue
                for one in measured_in(record):
                    found.setdefault((one.engine, one.dtype, one.threads, one.parameters), one)
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        return cls(tuple(found.values()))

    @classmethod
    def of_card(cls, kind: str, card: str) -> "Rates":
        """Those of a plan's devices: of this processor, or of GPUs by their name.

        A planned fleet's card is told by a part of the name: `H100-80` stands for an `NVIDIA H100 80GB HBM3`.
        """
        if kind == "cpu":
            return cls.of(Hardware.processor())
        exact = cls.of(Hardware("cuda", card, 0))
        word = re.sub(r"[^\w.-]+", "-", card.rpartition("-")[0] or card).lower()
        near = [path.name for path in sorted(folder().glob("cuda-*")) if word in path.name.lower()]
        return exact if exact.measured or not near else cls.of(Hardware("cuda", near[0].removeprefix("cuda-"), 0))

    def tokens_s(self, engine: str, dtype: str, parameters: int, threads: int = 0) -> float | None:
        """Forward tokens a second of a model of this size on one device, None where nothing alike was measured.

        Between two sizes that were measured straight in logarithms, beyond them in inverse proportion to the size. Another
        number of threads is reckoned in proportion.
        """
        alike = self._alike(engine, dtype, threads)
        if not alike or parameters <= 0:
            return None
        points = sorted((one.parameters, one.tokens_s * _share(one, threads)) for one in alike)
        below = [p for p in points if p[0] <= parameters]
        above = [p for p in points if p[0] >= parameters]
        if not below or not above:
            size, rate = above[0] if above else below[-1]
            return rate * size / parameters
        (small, fast), (large, slow) = below[-1], above[0]
        if small == large:
            return fast
        part = math.log(parameters / small) / math.log(large / small)
        return math.exp(math.log(fast) + part * math.log(slow / fast))

    def start(self, engine: str, dtype: str, weights: float, read: float, threads: int = 0) -> tuple[float, float] | None:
        """(seconds until a new process has loaded its first model, those of a later model in it), None where not measured.

        `read`: bytes of weights a second, for what is larger or smaller than the nearest model that was measured.
        """
        alike = self._alike(engine, dtype, threads)
        if not alike:
            return None
        near = min(alike, key=lambda one: abs(math.log(max(one.weights, 1) / max(weights, 1.0))))
        more = (weights - near.weights) / read
        later = max(0.1, near.next + more)
        return near.process + max(later, near.first + more), later

    def _alike(self, engine: str, dtype: str, threads: int) -> Sequence[MeasuredSpeed]:
        """Of the same engine and dtype, with the number of threads that is nearest."""
        alike = [one for one in self.measured if one.engine == engine and one.dtype == dtype]
        if not alike:
            return []
        near = min({one.threads for one in alike}, key=lambda n: abs(n - threads))
        return [one for one in alike if one.threads == near]

    @property
    def newest(self) -> str:
        """When the newest of them was made, empty where there is none."""
        return max((one.when for one in self.measured), default="")


def _share(one: MeasuredSpeed, threads: int) -> float:
    return threads / one.threads if threads and one.threads else 1.0


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast a plan takes a fleet's devices to be.

    Attributes:
        throughput: forward tokens a second of a 1B model on one device, as the user says; it counts first.
        threads: of one CPU worker.
        measured: card → what was measured on it.
    """

    throughput: float | None = None
    threads: int = 0
    measured: Mapping[str, Rates] = field(default_factory=dict)

    @classmethod
    def known(cls, fleet: Fleet, throughput: float | None = None, threads: int = 0) -> "Speeds":
        """With the benches that are kept of the fleet's devices."""
        if throughput is not None:
            return cls(throughput)
        cards = {node.card: node.kind for node in fleet.nodes}
        return cls(
            None, threads if fleet.kind == "cpu" else 0, {card: Rates.of_card(kind, card) for card, kind in cards.items()}
        )

    def rates(self, card: str) -> Rates:
        """What was measured on this card."""
        return self.measured.get(card, Rates())

    @property
    def newest(self) -> str:
        """When the newest measurement was made, empty without one."""
        return max((rates.newest for rates in self.measured.values()), default="")
