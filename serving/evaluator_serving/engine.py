"""The engine protocol.

An engine owes the program three verbs: describe, score, close. A new engine is one module with a class that has them and a
line in `registry.ENGINES`.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.errors import InputError
from evaluator_serving.rows import Row

DeviceKind = Literal["cpu", "cuda", "server"]
"""Where the arithmetic is done: on this machine's CPU or GPU, or by somebody else's server."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is asked to run; a field that an engine has no use for is refused by it, not ignored.

    Attributes:
        dtype: `float32`, `float64`, `float16`, `bfloat16` or `int8` (ONNX only).
        device: `auto`, `cpu`, `cuda`, `cuda:1`, …
        batch_tokens: most padded tokens in one forward batch; None lets the engine choose.
        tensor_parallel, pipeline_parallel, quantization: passed through to vLLM.
        spread: devices that an engine without tensor parallelism of its own may lay a model's layers over (transformers).
        nodes: machines that the devices of one replica are on; more than one only where Ray has placed it (vLLM).
        extra: engine-specific options by their own names (from SWEEP.toml).
    """

    dtype: str = "float32"
    device: str = "auto"
    batch_tokens: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    quantization: str | None = None
    spread: int = 1
    nodes: int = 1
    extra: dict[str, Any] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """On how many devices one replica lies, and how: for the run's record."""
        devices = self.tensor_parallel * self.pipeline_parallel * self.spread
        sizes = {"tensor_parallel": self.tensor_parallel, "pipeline_parallel": self.pipeline_parallel, "spread": self.spread}
        return {"devices": devices, **sizes, "nodes": self.nodes}

    def refuse_unused(self, engine: str, *, dtypes: Collection[str], extra: Collection[str] = ()) -> None:
        """For an engine without parallelism or quantization: raise InputError for an option that it has no use for."""
        given: dict[str, Any] = {
            "tensor_parallel": self.tensor_parallel != 1,
            "pipeline_parallel": self.pipeline_parallel != 1,
            "quantization": self.quantization is not None,
            **{name: name not in extra for name in self.extra},
        }
        wrong = [name for name, unused in given.items() if unused]
        if wrong:
            raise InputError(f"the {engine} engine has no option {wrong[0]}: leave it out or choose another engine")
        if self.dtype not in dtypes:
            raise InputError(f"the {engine} engine has no dtype {self.dtype}: choose one of {', '.join(dtypes)}")


def option_value(value: Any) -> Any:
    """An extra option's value; on the command line all values are words: `0.5`, `true`, `null` mean what JSON means by them."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What makes an engine's numbers what they are; stored with the run and hashed into the answers' folder name.

    Attributes:
        engine: name in `registry.ENGINES`.
        model: the model spec as the user gave it.
        revision: hub revision or content hash of the weights.
        dtype: what the weights were computed in.
        versions: library versions that matter to the numbers.
        details: anything else worth keeping (device name, graph variant, chat template).
    """

    engine: str
    model: str
    revision: str
    dtype: str
    versions: dict[str, str]
    details: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """A loaded model. Constructed as `Engine(source, options, rows)` where rows are some of the run's own, of every head; a
    class with `sized = True` gets the whole run's `Workload` as the fourth argument.

    `device_kind` says what a unit of work is cut for; a class that has it as a class attribute says it before it is loaded.

    `harmless_extra`, on the class: names of extra options that can't move a number by more than rounding (memory, threads,
    retries). Every other one is part of the answers' identity, as all are where an engine names none.
    """

    device_kind: DeviceKind

    def describe(self) -> EngineInfo:
        """What is loaded, with which library versions."""

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities of every row's lookups, float32 or float64 arrays in the rows' order.

        Batches by itself (token budget; on out-of-memory it splits and tries again). Raises EngineError, with the row's
        index, where a logit is NaN or log P is not finite for a finite vocabulary entry.
        """

    def close(self) -> None:
        """Free the device's memory; the engine isn't used again."""
