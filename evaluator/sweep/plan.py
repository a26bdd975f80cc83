"""The plan of a sweep: what each model needs, how it is placed and how long it takes, before anything is loaded."""

from dataclasses import dataclass, replace

from evaluator.run.driver import Prepared
from evaluator.run.failures import Failures
from evaluator.run.prepare import PreparedModel
from evaluator.sweep.hardware import GIB, Hardware
from evaluator.sweep.schedule import Job, Schedule, schedule
from evaluator_serving.errors import InputError
from evaluator_serving.models import count_parameters
from evaluator_serving.rows import merge

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
OVERHEAD = {"cuda": 3 * GIB, "cpu": GIB // 2}
"""CUDA context, allocator slack, a KV cache and activations; on a CPU the libraries and activations."""
SHARE = 0.92
"""Of a device's free memory, what may be planned for."""
THROUGHPUT = {"cuda": 100_000.0, "cpu": 60.0}
"""Forward tokens a second of a model of one billion parameters on one device, where nothing was measured or given: half a
petaflop at 40% on a data-centre GPU; two cores at 120 GFLOP/s."""
READ_RATE = {"cuda": 1.5e9, "cpu": 1.0e9}
"""Bytes of weights a second from disk to device."""
START = {
    ("vllm", "cuda"): 40.0,
    ("vllm", "cpu"): 6.0,
    ("transformers", "cuda"): 8.0,
    ("transformers", "cpu"): 2.0,
    ("onnx", "cuda"): 10.0,
    ("onnx", "cpu"): 4.0,
}
"""Seconds until an engine is up, weights aside."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one model needs and how much there is to do.

    Attributes:
        name, engine, dtype: as in the run.
        parameters: of the checkpoint.
        memory: bytes for one replica over all its devices.
        devices: devices a replica (tensor × pipeline parallel).
        forwards, tokens: forward passes and tokens after de-duplication, pending ones only.
        several: candidates that are several tokens under this tokenizer, as text, with their token counts.
        load, score: estimated seconds on one replica.
    """

    name: str
    engine: str
    dtype: str
    parameters: int
    memory: int
    devices: int
    forwards: int
    tokens: int
    several: tuple[tuple[str, int], ...]
    load: float
    score: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole sweep's plan; `ready` is what is left of it where a model could not be planned."""

    ready: Prepared
    hardware: Hardware
    needs: tuple[Needs, ...]
    schedule: Schedule

    def cost(self, price: float) -> float:
        """What the sweep costs at `price` per device-hour, all devices held until the end."""
        return price * self.hardware.devices * self.schedule.makespan / 3600


def _divisors(heads: int, most: int) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most and heads % n == 0]


def _parallel(model: PreparedModel, memory: int, hardware: Hardware) -> int:
    """Devices a replica: as asked, else the smallest tensor-parallel size that fits (vLLM only). Raises InputError."""
    options = model.spec.options
    room = int(hardware.memory * SHARE)
    asked = options.tensor_parallel * options.pipeline_parallel
    if asked > 1:
        candidates = [asked]
    elif model.info.engine == "vllm" and hardware.kind == "cuda":
        candidates = _divisors(getattr(model.source.config, "num_attention_heads", 1) or 1, hardware.devices)
    else:
        candidates = [1]
    for devices in candidates:
        if devices <= hardware.devices and memory / devices <= room:
            return devices
    most = max(candidates)
    if most > hardware.devices:
        raise InputError(f"{model.name} asks for {most} devices, there are {hardware.devices}: lower tensor_parallel")
    missing = memory / most - room
    raise InputError(
        f"{model.name} needs {memory / GIB:.1f} GiB on {most} device(s) in {model.info.dtype}, {room / GIB:.1f} GiB are free "
        f"on each ({hardware.name}): {missing / GIB:.1f} GiB a device are missing; use a smaller dtype, quantization, "
        "or more devices"
    )


def model_needs(model: PreparedModel, hardware: Hardware, throughput: float | None = None) -> Needs:
    """Sizes and estimated times of one model. Raises InputError, with the number missing, if it doesn't fit.

    `throughput` is in forward tokens a second of a one-billion-parameter model on one device; None uses THROUGHPUT.
    """
    kind = hardware.kind
    parameters = count_parameters(model.source.path)
    itemsize = {"fp8": 1.0, "awq": 0.6, "gptq": 0.6}.get(model.spec.options.quantization or "", BYTES[model.info.dtype])
    weights = parameters * itemsize
    pending = [item for item in model.encoded if item.request not in model.answered]
    merged = merge(pending, share_prefixes=model.info.engine != "onnx")
    longest = max((row.length for row in merged.rows), default=0)
    vocabulary = getattr(model.source.config, "vocab_size", 0) or 0
    if model.info.engine == "openai":
        weights = 0.0  # the server holds them
    memory = int(weights * 1.05 + OVERHEAD[kind] + 64 * longest * vocabulary * 0.01)
    devices = _parallel(model, memory, hardware)
    tokens = sum(row.length for row in merged.rows)
    rate = (throughput or THROUGHPUT[kind]) * devices / max(parameters / 1e9, 1e-3)
    several: dict[str, int] = {}
    for item in pending:
        for candidate in item.candidates:
            if len(candidate.tokens) > 1 and len(several) < 1000:
                several[" ".join(map(str, candidate.tokens))] = len(candidate.tokens)
    start = START.get((model.info.engine, kind), 1.0)
    load = 0.0 if not pending else start + weights / devices / READ_RATE[kind]
    return Needs(
        name=model.name,
        engine=model.info.engine,
        dtype=model.info.dtype,
        parameters=parameters,
        memory=memory,
        devices=devices,
        forwards=len(merged.rows),
        tokens=tokens,
        several=tuple(several.items()),
        load=load,
        score=tokens / rate,
    )


def make_plan(ready: Prepared, hardware: Hardware, throughput: float | None = None) -> Plan:
    """Sizes, placement and times of a sweep. Raises InputError for a model that doesn't fit the hardware."""
    errors = Failures(ready.errors)
    needs: dict[str, Needs] = {}
    for model in ready.models:
        with errors.of(model.name, refuse=True):
            needs[model.name] = model_needs(model, hardware, throughput)
    if errors and not needs:
        raise errors.told()
    left = replace(ready, models=tuple(model for model in ready.models if model.name in needs), errors=errors)
    jobs = [Job(n.name, n.devices, n.load, n.score) for n in needs.values() if n.forwards]
    return Plan(left, hardware, tuple(needs.values()), schedule(jobs, hardware.devices, hardware.node))
