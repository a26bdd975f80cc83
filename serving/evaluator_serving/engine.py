"""The engine contract: what every engine, one of this program or of another package, says of itself and does.

An engine is a class derived from `Engine`, in one module, with a line in `registry.ENGINES` or an entry point in the group
`evaluator.engines` (see docs/extending.md). What is decided by which engine it is (chunks, plans, identity, checks, `--engine
auto`) is decided by the members of this class; what `describe` says is for people.
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
"""Where the arithmetic is done: on this machine's CPU or GPU, or by somebody else's server."""

Spread = Literal["one", "layers", "tensors"]
"""How an engine lays one model over several devices: not at all, some layers on each, or a share of every tensor on each."""

BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "bf16x2": 4, "int8": 1}
"""The dtypes that there are, with bytes a number. bf16x2 is float32, multiplied as sums of two bfloat16 numbers."""

CHUNK_SECONDS = 5
"""About how much work one chunk is: what a crash can lose."""
FLOPS = {"cpu": 1e11, "cuda": 1e14}
"""Rough arithmetic rate of a device, to turn seconds into tokens."""
CHUNK_TOKENS = {"cpu": 4096, "cuda": 131072, "server": 32768}
"""Most forward tokens a chunk, however small the model is; for a server, whose rate isn't known, all that it is given at once:
32 requests of 32 prompts of about 32 tokens."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is asked to run; a field that an engine has no use for is refused by it, not ignored.

    Attributes:
        dtype: one of BYTES.
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
    """What a model's numbers depend on; stored with the run and hashed into the answers' folder name.

    Attributes:
        engine: its name, as `registry.engine_class` takes it.
        model: the model spec as the user gave it.
        revision: hub revision or content hash of the weights.
        dtype: what the weights were computed in.
        versions: library versions that matter to the numbers.
        details: anything else that the numbers depend on (chat template, quantization, extra options).
    """

    engine: str
    model: str
    revision: str
    dtype: str
    versions: dict[str, str]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Extra:
    """An option of one engine's own (`--extra NAME=VALUE`, `extra` in SWEEP.toml).

    Attributes:
        name, help: what it is called, and a line on what it does.
        harmless: it can't move a number by more than rounding (memory, threads, retries), and so is no part of the answers'
            identity.
        choices: the values that it may have; empty: the engine reads them itself.
    """

    name: str
    help: str
    harmless: bool = False
    choices: tuple[str, ...] = ()


DECODING = Extra(
    OPTION,
    "model: apply to answers in words what the model's own generation_config.json sets (penalties, suppressed tokens; for "
    "drawn answers top_p and alike); temperature and length stay the run's [none of it is applied]",
    choices=("model",),
)
"""Of the engines that load models which answer in words."""


class Engine(ABC):
    """A loaded model that scores rows. Opened as `Engine(source, options, rows, workload)`, scored with, closed.

    Class attributes say what is known before anything is loaded:

    Attributes:
        name: what the engine is called, in messages.
        summary: one line on it.
        heads: what it can answer.
        dtypes: what it computes in.
        devices: where it can compute.
        spread: how it lays one model over several devices.
        extra: its own options; `passes_on`: it has others besides, which it hands to its library, and all of which count.
        requires: the modules that must be installed for it.
        packages: the distributions whose versions can change a number (those that are installed are recorded).
        start_seconds: until it is up, weights aside, by kind of device; 1 where it isn't said. Plans are made with it.
        reads_weights: whether loading it reads the model's weights; a server has its own.
        comparable: whether its numbers should be the oracle's (the transformers engine's). One that computes something else on
            purpose is only checked against itself.
        sized: whether it is loaded with room for its rows and has none for longer ones.
        repeatable: whether a chat without randomness (temperature 0) gets the same answer from the same rows every time.
        costs: whether its answers may be paid for: each is then on disk before the next one is asked for.
        device_kind: where this one computes; set by `__init__`. Work is cut for it.
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
        """Load the model. `rows` are some of the run's own, of every head; `workload` is how much all of them are.

        Raises InputError for what `check` refuses, and for a model that can't be loaded.
        """

    def details(self) -> dict[str, Any]:
        """Facts about the loaded engine for `engine_details` in run.json (device, graph): JSON values. Nothing depends on them.

        What the numbers depend on is known before loading: see `identity.identity`.
        """
        return {"device": self.device_kind}

    @abstractmethod
    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities (natural) of every row's lookups, float32 or float64 arrays in the rows' order.

        Batches by itself (token budget; on out-of-memory it splits and tries again). Raises EngineError, with the row's
        index, where a logit is NaN or log P is not finite for a finite vocabulary entry.
        """

    def score_kept(self, rows: Sequence[Row], kept: AnswerStore | None) -> list[NDArray[np.floating]]:
        """As `score`. An engine that `costs` asks for no number that `kept` has, and keeps the others as they come."""
        return self.score(rows)

    def generate(self, rows: Sequence[Row], kept: AnswerStore | None = None) -> list[tuple[Reply, ...]]:
        """What is said to `chat` rows, as many replies as each wants, in the rows' order; for an engine with that head.

        At temperature 0 the most probable token each time, else drawn from the model's own distribution divided by the
        temperature, nothing cut off or penalised; an answer ends with the model's end-of-turn or end-of-text token. What `kept`
        has is not asked for. Raises EngineError as `score` does.
        """
        raise EngineError(f"the {self.name} engine doesn't generate text")

    @abstractmethod
    def close(self) -> None:
        """Free the device's memory; the engine isn't used again."""

    def fall_back(self) -> bool:
        """Go over to a simpler way to compute the same, after wrong numbers; says whether there was one."""
        return False

    @classmethod
    def check(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError where it can't score these heads of a model, or has no use for an option.

        Asked before anything is loaded. An engine with more to refuse calls this one first.
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
        """Raise InputError where this process hasn't the device, or the engine can't score these heads on it.

        Asked where the model will be loaded, before anything is made or loaded. An engine with more to refuse calls this one
        first.
        """
        if options.device.startswith("cuda") and "cuda" in cls.devices:
            check_cuda(options.device)

    @classmethod
    def _unused(cls, options: EngineOptions) -> Iterator[str]:
        """The given options that it has no use for."""
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
        """Names of its own options that can't change a number; all others are part of the answers' identity."""
        return frozenset(option.name for option in cls.extra if option.harmless)

    @classmethod
    def unsent(cls, options: EngineOptions) -> frozenset[str]:
        """Fields of a `Chat` that whoever answers isn't told, as the options have it."""
        return frozenset()

    @classmethod
    def dollars(cls, options: EngineOptions, prompt_tokens: int, answer_tokens: int) -> float | None:
        """What so many tokens of chats and answers cost at the prices that the options name; None where they name none."""
        return None

    @classmethod
    def weight_bytes(cls, parameters: int, options: EngineOptions) -> float:
        """Bytes of memory that the weights of a model of this many parameters take."""
        return parameters * BYTES[options.dtype] if cls.reads_weights else 0.0

    @classmethod
    def chunk_tokens(cls, parameters: int, device: DeviceKind) -> int:
        """Forward tokens a chunk for a model of this many parameters: about CHUNK_SECONDS of work on a `cpu` or `cuda`.

        Depends on nothing that changes between attempts, so that a resumed run cuts the same chunks.
        """
        if device == "server":
            return CHUNK_TOKENS[device]
        seconds = CHUNK_SECONDS * FLOPS[device] / (2 * max(parameters, 1))
        return int(min(CHUNK_TOKENS[device], max(256, seconds)))

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """How much `--engine auto` should like it for these heads of a model with these options: the largest number wins.

        0: never by itself. The transformers engine, which can do nearly everything, says 1. Above that says an engine that
        is installed, can do it exactly on the device that torch would use, and is faster.
        """
        return 0

    @classmethod
    def is_ready(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> bool:
        """Whether it starts soon enough to be asked one question only, having made before what takes it long."""
        return False

    @classmethod
    def misses(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> str | None:
        """Why `auto` can't mean this engine for this model, where it would for others of its kind; else None.

        It is told, as the model is scored more slowly than they.
        """
        return None
