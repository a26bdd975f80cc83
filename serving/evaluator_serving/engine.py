"""The interface of engines, of this program and of other packages.

An engine is a class derived from `Engine`, in one module, with a line in `registry.ENGINES` or an entry point in the group
`evaluator.engines` (see docs/extending.md). Everything that depends on the engine (chunks, plans, fingerprint, checks,
`--engine auto`) is decided by members of this class; `details` is only recorded.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.chats import AnswerStore, Reply
from evaluator_serving.devices import check_cuda
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.decoding import OPTION
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Head, Row, Workload

DeviceKind = Literal["cpu", "cuda", "server"]
"""Where the engine computes: on this machine's CPU or GPU, or on a server."""

Spread = Literal["one", "layers", "tensors"]
"""How an engine distributes a model over several devices: not at all, by layers, or by parts of every tensor."""

BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "bf16x2": 4, "int8": 1}
"""The dtypes, with bytes per number. bf16x2 is float32, multiplied as sums of two bfloat16 numbers."""

CHUNK_SECONDS = 5
"""Approximate work of one chunk, which a crash can lose."""
FLOPS = {"cpu": 1e11, "cuda": 1e14}
"""Rough arithmetic rate of a device, to turn seconds into tokens."""
CHUNK_TOKENS = {"cpu": 32768, "cuda": 131072, "server": 32768}
"""Maximum forward tokens per chunk: fewer than CHUNK_SECONDS of work for a small model. For a server, whose speed is unknown:
32 requests of 32 prompts of about 32 tokens."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of an engine. An engine refuses options that it does not support.

    Attributes:
        dtype: one of BYTES.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, …
        batch_tokens: maximum padded tokens per forward batch; None: chosen by the engine.
        tensor_parallel, pipeline_parallel, quantization: passed through to vLLM.
        spread: devices over which an engine without tensor parallelism may distribute a model's layers (transformers).
        nodes: machines of the devices of one replica; more than one on Ray only (vLLM).
        extra: engine-specific options by name.
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
        """Number of devices of one replica and how it is distributed, for the run's record."""
        devices = self.tensor_parallel * self.pipeline_parallel * self.spread
        sizes = {"tensor_parallel": self.tensor_parallel, "pipeline_parallel": self.pipeline_parallel, "spread": self.spread}
        return {"devices": devices, **sizes, "nodes": self.nodes}


def option_value(value: Any) -> Any:
    """An extra option's value. Values from the command line are text: `0.5`, `true` and `null` are read as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Everything that a model's numbers depend on; stored in the run and hashed into the answers' folder name.

    Attributes:
        engine: its name, as `registry.engine_class` takes it.
        model: the model spec as the user gave it.
        revision: hub revision or content hash of the weights.
        dtype: dtype of the computation.
        versions: versions of libraries that affect the numbers.
        details: other dependencies of the numbers (chat template, quantization, extra options).
    """

    engine: str
    model: str
    revision: str
    dtype: str
    versions: dict[str, str]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Extra:
    """An engine-specific option (`--extra NAME=VALUE`, `extra` in SWEEP.toml).

    Attributes:
        name, help: its name, and a one-line description.
        harmless: it changes numbers by rounding at most (memory, threads, retries) and is not part of the fingerprint.
        choices: allowed values; empty: the engine validates the value.
    """

    name: str
    help: str
    harmless: bool = False
    choices: tuple[str, ...] = ()


DECODING = Extra(
    OPTION,
    "model: apply the model's generation_config.json to generated answers (penalties, suppressed tokens; top_p etc. if they "
    "are sampled), except temperature and length [not applied]",
    choices=("model",),
)
"""An option of engines that load models and generate text."""


class Engine(ABC):
    """A loaded model that scores rows. Opened as `Engine(source, options, rows, workload)`, scored with, closed.

    Class attributes describe the engine before anything is loaded:

    Attributes:
        name: the engine's name.
        summary: a one-line description.
        heads: request heads that it supports.
        dtypes: dtypes that it supports.
        devices: kinds of device that it supports.
        spread: how it distributes a model over several devices.
        extra: engine-specific options; `passes_on`: further options are passed to its library and are part of the fingerprint.
        requires: modules that must be installed.
        packages: distributions whose versions can change a number (installed ones are recorded).
        start_seconds: start-up time without loading weights, by kind of device, for plans; default 1.
        reads_weights: whether loading reads the model's weights (false for servers).
        comparable: whether its numbers should equal those of the transformers engine. Otherwise it is only compared with
            itself.
        sized: whether it is loaded for the length of its rows and cannot score longer ones.
        repeatable: whether a chat at temperature 0 always gets the same answer.
        costs: whether its answers are paid for: each is stored before the next one is requested.
        device_kind: the device of this instance, set by `__init__`; chunks are sized for it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    heads: ClassVar[frozenset[Head]]
    dtypes: ClassVar[tuple[str, ...]]
    devices: ClassVar[tuple[DeviceKind, ...]] = ("cpu", "cuda")
    spread: ClassVar[Spread] = "one"
    extra: ClassVar[tuple[Extra, ...]] = ()
    passes_on: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    start_seconds: ClassVar[Mapping[str, float]] = {}
    reads_weights: ClassVar[bool] = True
    comparable: ClassVar[bool] = True
    sized: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True
    costs: ClassVar[bool] = False

    device_kind: DeviceKind

    @abstractmethod
    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        """Load the model. `rows` are some rows of the run, of every head; `workload` describes all of them.

        Raises InputError as `check` does, and for a model that cannot be loaded.
        """

    def details(self) -> dict[str, Any]:
        """Facts about the loaded engine for `engine_details` in run.json (device, graph): JSON values. Nothing depends on them.

        Everything that numbers depend on is known before loading: see `identity.identity`.
        """
        return {"device": self.device_kind}

    @abstractmethod
    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities (natural) of every row's lookups, float32 or float64 arrays in the rows' order.

        The engine makes batches (within a token budget; a batch that does not fit in memory is split). Raises EngineError with
        the row's index if a logit is NaN or a log-probability is not finite.
        """

    def score_kept(self, rows: Sequence[Row], kept: AnswerStore | None) -> list[NDArray[np.floating]]:
        """As `score`. An engine that `costs` uses the answers in `kept` and adds new ones to it as they arrive."""
        return self.score(rows)

    def generate(self, rows: Sequence[Row], kept: AnswerStore | None = None) -> list[tuple[Reply, ...]]:
        """Replies to `chat` rows, as many as each requests, in the rows' order; for engines with this head.

        At temperature 0 decoding is greedy, else tokens are sampled from the model's distribution at this temperature, without
        truncation or penalties. An answer ends with the model's end-of-turn or end-of-text token. Answers in `kept` are not
        generated again. Raises EngineError as `score` does.
        """
        raise EngineError(f"the {self.name} engine doesn't generate text")

    @abstractmethod
    def close(self) -> None:
        """Free the device's memory. The engine is not used afterwards."""

    def fall_back(self) -> bool:
        """Switch to a simpler computation of the same numbers after a failed check. Returns whether there is one."""
        return False

    @classmethod
    def check(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError if the engine cannot score these heads of a model, or does not support an option.

        Called before anything is loaded. An override calls this method first.
        """
        if source.served and cls.devices != ("server",):
            raise InputError(
                f"model {source.spec}: it is on a server, which the {cls.name} engine does not support: use --engine openai"
            )
        wrong = next(cls._unused(options), None)
        if wrong is not None:
            raise InputError(f"the {cls.name} engine has no option {wrong}: remove it or choose another engine")
        for option in cls.extra:
            value = str(options.extra.get(option.name, "")).lower()
            if option.choices and value and value not in option.choices:
                allowed = " or ".join(option.choices)
                raise InputError(f"the {cls.name} engine has no {option.name} {value!r}: choose {allowed}")
        if options.dtype not in cls.dtypes:
            raise InputError(f"the {cls.name} engine has no dtype {options.dtype}: choose one of {', '.join(cls.dtypes)}")
        if other := sorted(heads - cls.heads):
            raise InputError(
                f"model {source.spec}: these requests need a {other[0]} head, and the {cls.name} engine scores "
                f"{' and '.join(sorted(cls.heads - {'chat'}))} ones only: use --engine transformers"
            )

    @classmethod
    def check_here(cls, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError if this process does not have the device, or the engine cannot score these heads on it.

        Called in the process that will load the model, before anything is loaded. An override calls this method first.
        """
        if options.device.startswith("cuda") and "cuda" in cls.devices:
            check_cuda(options.device)

    @classmethod
    def _unused(cls, options: EngineOptions) -> Iterator[str]:
        """Given options that the engine does not support."""
        if cls.spread != "tensors":
            given = {
                "tensor_parallel": options.tensor_parallel != 1,
                "pipeline_parallel": options.pipeline_parallel != 1,
                "quantization": options.quantization is not None,
            }
            yield from (name for name, used in given.items() if used)
        if cls.devices == ("server",):
            of_a_device = {"device": options.device != "auto", "batch_tokens": options.batch_tokens is not None}
            yield from (name for name, used in of_a_device.items() if used)
        if not cls.passes_on:
            known = {option.name for option in cls.extra}
            yield from (name for name in options.extra if name not in known)

    @classmethod
    def harmless_extra(cls) -> frozenset[str]:
        """Names of options that cannot change a number; all others are part of the fingerprint."""
        return frozenset(option.name for option in cls.extra if option.harmless)

    @classmethod
    def unsent(cls, options: EngineOptions) -> frozenset[str]:
        """Fields of a `Chat` that are not sent, according to the options."""
        return frozenset()

    @classmethod
    def dollars(cls, options: EngineOptions, prompt_tokens: int, answer_tokens: int) -> float | None:
        """Cost of these prompt and answer tokens at the prices in the options; None without prices."""
        return None

    @classmethod
    def weight_bytes(cls, parameters: int, options: EngineOptions) -> float:
        """Bytes of memory for the weights of a model with this many parameters."""
        return parameters * BYTES[options.dtype] if cls.reads_weights else 0.0

    @classmethod
    def chunk_tokens(cls, parameters: int, device: DeviceKind) -> int:
        """Forward tokens per chunk for a model with this many parameters: about CHUNK_SECONDS of work on `cpu` or `cuda`.

        It depends on nothing that changes between attempts, so a resumed run has the same chunks.
        """
        if device == "server":
            return CHUNK_TOKENS[device]
        seconds = CHUNK_SECONDS * FLOPS[device] / (2 * max(parameters, 1))
        return int(min(CHUNK_TOKENS[device], max(256, seconds)))

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """Preference of `--engine auto` for this engine, these heads and options: the largest number is chosen.

        0: never chosen automatically. The transformers engine returns 1. An engine returns more if it is installed, gives exact
        numbers on the device that torch would use, and is faster.
        """
        return 0

    @classmethod
    def is_ready(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> bool:
        """Whether it starts quickly enough for a single question, because slow preparation was done before."""
        return False

    @classmethod
    def misses(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> str | None:
        """Why `auto` does not choose this engine for this model although it does for similar ones; else None.

        The reason is reported, because the model is scored more slowly.
        """
        return None
