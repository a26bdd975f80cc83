"""One backend's process: `python -m evaluator.bench.backends`. It reads a `BenchJob`, then slice numbers.

It answers each line with a line of JSON: first the cost of its start, then each slice's cost and log-probabilities. The
line `reload` makes an engine load the model once more in the same process.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from evaluator.bench import harness, messages
from evaluator.bench.counter import Counter
from evaluator.bench.job import BenchJob, BenchWorkload
from evaluator_serving.devices import bfloat16_units

WARM_UP = 8
"""Requests scored before the measurement: the first pass allocates and compiles."""

Numbers = dict[str, list[float]]
"""Request id → log P of each candidate."""


class Backend(Protocol):
    """Scores requests; constructed with (job, work, counter)."""

    def start(self) -> dict[str, float]:
        """Load the model. Returns seconds by part."""

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """Score these requests. Returns the numbers, and seconds and counts by name."""

    def reload(self) -> float:
        """Load the model once more in this process. Returns seconds, 0 for baselines."""


class EngineBackend:
    """An engine as a run uses it: encode, merge, cut into chunks, score, store."""

    def __init__(self, job: BenchJob, work: BenchWorkload, counter: Counter) -> None:
        from evaluator.scoring.record import record
        from evaluator.scoring.summary import sizing
        from evaluator.scoring.worker import Load, Worker
        from evaluator_serving.encoding import encoder_for

        model = work.model
        self._asked, self._work, self._counter = job, work, counter
        self._run = record(work.spec, work.tasks, [model])
        self._folder = self._run.answers_folder(model.name)
        self._encoder = encoder_for(model.source)
        rows, workload = sizing([model.summary])
        self._load = Load(model.info.engine, model.source, model.spec.options, rows, workload, verify=True)
        self._worker = Worker()
        self.device = ""

    def start(self) -> dict[str, float]:
        """Fetch, load and verify the model as a replica does."""
        self._worker.fetch(self._load)
        loaded = self._worker.load(self._load)
        self.device = loaded.device_kind
        vocabulary = getattr(self._work.model.source.config.get_text_config(), "vocab_size", 0) or 1 << 62
        assert self._worker._engine is not None
        self._counter.of_engine(self._worker._engine, vocabulary)
        return dict(loaded.seconds)

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """Encode, score and store these requests."""
        from evaluator_serving.chunks import chunks
        from evaluator_serving.registry import engine_class

        begun = time.perf_counter()
        encoded = [self._encoder.encode(self._work.requests[key]) for key in ids]
        took = {"encode": time.perf_counter() - begun, "forward": 0.0, "write": 0.0, "tokens": 0.0, "rows": 0.0}
        took |= {"planned": 0.0, "device": 0.0}
        device: Any = self.device
        size = engine_class(self._load.engine).chunk_tokens(self._load.source.parameters, device)
        numbers: Numbers = {}
        for chunk in chunks(encoded, tokens=size):
            scored = self._worker.score(chunk)
            begun = time.perf_counter()
            self._run.add_answers(self._folder, scored.answers)
            took["write"] += time.perf_counter() - begun
            took["forward"] += scored.seconds
            took["tokens"] += scored.tokens
            took["planned"] += chunk.table.forwards.computed
            took["rows"] += scored.rows
            took["device"] = max(took["device"], scored.device_memory)
            for frame in scored.answers.values():
                for request, logprobs in frame.select("request", "logprobs").iter_rows():
                    numbers.setdefault(request, []).append(sum(logprobs))
        return numbers, took

    def reload(self) -> float:
        """Load as a replica's process loads its next model."""
        self._worker.close()
        begun = time.perf_counter()
        self._worker.fetch(self._load)
        self._worker.load(self._load)
        return time.perf_counter() - begun


class LoopBackend:
    """A plain transformers loop: one input at a time, softmax over the logits of all its positions."""

    def __init__(self, job: BenchJob, work: BenchWorkload, counter: Counter) -> None:
        from evaluator_serving.encoding import encoder_for

        self._asked, self._work, self._counter = job, work, counter
        self._encoder = encoder_for(work.model.source)
        self._network: Any = None
        self._on = "cpu"

    def start(self) -> dict[str, float]:
        """Load the model with transformers' own class."""
        import torch
        import transformers

        from evaluator_serving.models.resolving import weights_here

        heads = frozenset().union(*self._work.model.heads.values())
        kind = "AutoModelForMaskedLM" if "masked" in heads else "AutoModelForCausalLM"
        self._on = ("cuda" if torch.cuda.is_available() else "cpu") if self._asked.device == "auto" else self._asked.device
        dtype = getattr(torch, self._asked.own_dtype)
        factory = getattr(transformers, kind)
        with weights_here(self._work.model.source) as source:
            begun = time.perf_counter()
            own_code = source.code is not None
            self._network = factory.from_pretrained(source.path, dtype=dtype, trust_remote_code=own_code).eval().to(self._on)
        self._counter.of_embeddings(source.config.get_text_config().vocab_size)
        return {"engine": time.perf_counter() - begun}

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """One forward pass per input."""
        import torch

        from evaluator_serving.answers import assemble
        from evaluator_serving.chunks import make_chunk

        begun = time.perf_counter()
        took = {"encode": 0.0, "tokens": 0.0, "rows": 0.0}
        numbers: Numbers = {}
        for key in ids:
            begun_one = time.perf_counter()
            chunk = make_chunk([self._encoder.encode(self._work.requests[key])])
            took["encode"] += time.perf_counter() - begun_one
            values = []
            for row in chunk.rows:
                inputs = {"input_ids": torch.tensor([row.ids], device=self._on)}
                if row.type_ids is not None:
                    inputs["token_type_ids"] = torch.tensor([row.type_ids], device=self._on)
                with torch.no_grad():
                    table = self._network(**inputs).logits.float().softmax(dim=-1)[0]
                values.append(torch.stack([table[position, token] for position, token in row.lookups]).log().cpu().numpy())
            (answer,) = assemble(chunk, values)
            numbers[key] = [sum(candidate) for candidate in answer.logprobs]
            took["tokens"] += chunk.tokens
            took["rows"] += len(values)
        return numbers, {**took, "forward": time.perf_counter() - begun - took["encode"]}

    def reload(self) -> float:
        """Not measured for baselines."""
        return 0.0


class HarnessBackend:
    """lm-evaluation-harness's log-likelihoods of (context, continuation): `hf` at its fastest batch size here, or `vllm`."""

    def __init__(self, job: BenchJob, work: BenchWorkload, counter: Counter, *, backend: str) -> None:
        self._asked, self._work, self._counter, self._kind = job, work, counter, backend
        self._backend: Any = None

    def start(self) -> dict[str, float]:
        """Load the backend."""
        from evaluator_serving.models.resolving import weights_here

        with weights_here(self._work.model.source) as source:
            begun = time.perf_counter()
            path, dtype, own_code = str(source.path), self._asked.own_dtype, source.code is not None
            if self._kind == "hf":
                sample = self._pairs(list(self._work.requests)[: 4 * WARM_UP])
                self._backend = harness.on_transformers(path, dtype, [pair for _, pair in sample], own_code=own_code)
                self._counter.of_embeddings(self._backend.model.config.vocab_size)
            else:
                self._backend = harness.on_vllm(path, dtype, own_code=own_code)
                self._counter.of_scheduler(self._backend.model)
        return {"engine": time.perf_counter() - begun}

    def _pairs(self, ids: Sequence[str]) -> list[tuple[str, harness.Pair]]:
        """Request id with a (context, continuation) pair, one per candidate."""
        from evaluator_serving.requests import Continuation

        pairs = []
        for key in ids:
            request = self._work.requests[key]
            if not isinstance(request, Continuation):
                raise ValueError("lm-evaluation-harness scores continuations only, of generative models")
            pairs += [(key, (request.context, candidate)) for candidate in request.candidates]
        return pairs

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """Score all candidates of these requests."""
        begun = time.perf_counter()
        pairs = self._pairs(ids)
        numbers: Numbers = {}
        for (key, _), log_p in zip(pairs, harness.log_probabilities(self._backend, [p for _, p in pairs]), strict=True):
            numbers.setdefault(key, []).append(log_p)
        return numbers, {"forward": time.perf_counter() - begun}

    def reload(self) -> float:
        """Not measured for baselines."""
        return 0.0


class Ceilings:
    """This machine's current rates, measured with torch: a large matrix product (on CPUs with units for bfloat16 another one in
    that dtype) and a memory copy."""

    def __init__(self, job: BenchJob) -> None:
        import torch

        self._device = ("cuda" if torch.cuda.is_available() else "cpu") if job.device == "auto" else job.device
        on_gpu = self._device.startswith("cuda")
        side = 8192 if on_gpu else 2048
        dtype = getattr(torch, job.own_dtype if on_gpu and job.dtype != "int8" else "float32")
        if job.threads:  # 0 on GPUs
            torch.set_num_threads(job.threads)
        self._side = side
        self._products = {"matrix_gflop_s": self._product(dtype)}
        if not on_gpu and bfloat16_units() and torch.backends.mkldnn.is_available():
            self._products["bfloat16_gflop_s"] = self._product(torch.bfloat16)
        self._source = torch.ones((1 << 28) if on_gpu else (1 << 25), device=self._device)
        self._target = torch.empty_like(self._source)

    def measure(self) -> dict[str, float]:
        """GFLOP/s, and GB/s read and written: the best of several measurements."""

        rates = {name: 2 * self._side**3 / self._best(product, 6) / 1e9 for name, product in self._products.items()}
        copy = self._best(lambda: self._target.copy_(self._source), 4)
        return {**rates, "memory_gb_s": 2 * self._source.nbytes / copy / 1e9}

    def _product(self, dtype: Any) -> Callable[[], object]:
        """A large product in a dtype; of bfloat16 on a CPU with a weight that is laid out once."""
        import torch

        a, b = (torch.randn(self._side, self._side, device=self._device).to(dtype) for _ in range(2))
        if dtype != torch.bfloat16 or self._device.startswith("cuda"):
            return lambda: torch.mm(a, b)
        packed = torch.ops.mkldnn._reorder_linear_weight(b, self._side)
        return lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")

    def _best(self, call: Callable[[], object], times: int) -> float:
        import torch

        seconds = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            if self._device.startswith("cuda"):
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        return min(seconds)


BACKENDS: Mapping[str, Callable[[BenchJob, BenchWorkload, Counter], Backend]] = {
    "engine": EngineBackend,
    "transformers-loop": LoopBackend,
    "lm-eval": lambda job, work, counter: HarnessBackend(job, work, counter, backend="hf"),
    "lm-eval-vllm": lambda job, work, counter: HarnessBackend(job, work, counter, backend="vllm"),
}
BASELINES = tuple(name for name in BACKENDS if name != "engine")
"""Backends that engines can be compared with."""
CEILINGS = "ceilings"


def serve(job: BenchJob, lines: Iterator[str], answers: IO[str]) -> None:
    """Load the backend, then answer the parent's lines until they end."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        work = BenchWorkload.of(job, Path(folder) / "run")
        counter = Counter()
        backend = BACKENDS[job.backend](job, work, counter)
        prepared = time.perf_counter() - began
        start = backend.start()
        backend.score([key for ids in work.slices for key in ids][:WARM_UP])
        ready = {"start": start, "prepared": prepared, "model": _model(work), "sentences": list(work.sentences)}
        messages.send(answers, ready)
        for line in lines:
            if line.strip() == "reload":
                messages.send(answers, {"reload": backend.reload()})
            else:
                messages.send(answers, messages.measure_call(counter, partial(backend.score, work.slices[int(line)])))


def serve_ceilings(job: BenchJob, lines: Iterator[str], answers: IO[str]) -> None:
    """Measure the machine's rates whenever the parent sends a line."""
    ceilings = Ceilings(job)
    ceilings.measure()
    messages.send(answers, {"ready": True})
    for _ in lines:
        messages.send(answers, ceilings.measure())


def _model(work: BenchWorkload) -> dict[str, Any]:
    """Sizes of the model and of its work: multiplications per forward token and per position read."""
    source = work.model.source
    text = source.config.get_text_config()
    vocabulary, width = getattr(text, "vocab_size", 0) or 0, getattr(text, "hidden_size", 0) or 0
    embedding = vocabulary * width
    tied = bool(getattr(source.config, "tie_word_embeddings", True))
    return {
        "spec": Path(source.spec).name if Path(source.spec).exists() else source.spec,
        "revision": source.revision,
        "parameters": source.parameters,
        "weights": 4 * source.parameters,
        "heads": sorted(frozenset().union(*work.model.heads.values())),
        "body": max(0, source.parameters - embedding * (1 if tied else 2)),
        "vocabulary_head": embedding,
        "reads": _reads(work),
        "tokens": sum(row.length for row in _rows(work)),
    }


def _rows(work: BenchWorkload) -> Sequence[Any]:
    from evaluator_serving.chunks import merge

    return merge(work.model.encoded).rows


def _reads(work: BenchWorkload) -> int:
    """Positions whose logits are read."""
    return sum(len({position for position, _ in row.lookups}) for row in _rows(work))


def main() -> None:
    """Serve the job in the first line of input."""
    with messages.command_stream() as (lines, answers):
        job = BenchJob.parse(next(lines))
        (serve_ceilings if job.backend == CEILINGS else serve)(job, lines, answers)


if __name__ == "__main__":
    main()
