"""One backend's process: `python -m evaluator.bench.backends`. It reads a `BenchJob`, then slice numbers.

It answers a line of JSON each: when it is ready what its start took, then what each slice took and the log-probabilities. A
last line `again` makes an engine load the model once more in the same process.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from evaluator.bench import answering, harness
from evaluator.bench.counter import Counter
from evaluator.bench.job import BenchJob, BenchWorkload

TRIED = 8
"""Requests that warm a backend up: the first pass allocates and compiles."""

Numbers = dict[str, list[float]]
"""Request's id → log P of each candidate."""


class Backend(Protocol):
    """Something that answers requests; made with (asked, work, counter)."""

    def start(self) -> dict[str, float]:
        """Load; what that took, by part."""

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """Answer these requests: the numbers, and seconds and counts by name."""

    def again(self) -> float:
        """Load once more in this process; the seconds, 0 where that says nothing."""


class EngineBackend:
    """An engine as a run uses it: encode, merge, cut into chunks, score, store."""

    def __init__(self, asked: BenchJob, work: BenchWorkload, counter: Counter) -> None:
        from evaluator.scoring.prepare import engine_rows, record
        from evaluator.scoring.worker import Load, Worker
        from evaluator_serving.encoding import encoder_for

        model = work.model
        self._asked, self._work, self._counter = asked, work, counter
        self._run = record(work.spec, work.tasks, [model])
        self._folder = self._run.answers_folder(model.name)
        self._encoder = encoder_for(model.source)
        rows, workload = engine_rows([model])
        self._load = Load(model.info.engine, model.source, model.spec.options, rows, workload, verify=True)
        self._worker = Worker()
        self.device = ""

    def start(self) -> dict[str, float]:
        """As a replica starts."""
        self._worker.fetch(self._load)
        loaded = self._worker.load(self._load)
        self.device = loaded.device_kind
        vocabulary = getattr(self._work.model.source.config.get_text_config(), "vocab_size", 0) or 1 << 62
        assert self._worker._engine is not None
        self._counter.of_engine(self._worker._engine, vocabulary)
        return dict(loaded.seconds)

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """Encode, score and store them."""
        from evaluator_serving.packing import computed
        from evaluator_serving.registry import engine_class
        from evaluator_serving.rows import chunks

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
            self._run.add_answers(self._folder, self._work.model.kinds, scored.answers)
            took["write"] += time.perf_counter() - begun
            took["forward"] += scored.seconds
            took["tokens"] += scored.tokens
            took["planned"] += computed(chunk.merged)
            took["rows"] += scored.rows
            took["device"] = max(took["device"], scored.device_memory)
            numbers |= {one.request: [sum(candidate) for candidate in one.logprobs] for one in scored.answers}
        return numbers, took

    def again(self) -> float:
        """As a replica's process takes its next model."""
        self._worker.close()
        begun = time.perf_counter()
        self._worker.fetch(self._load)
        self._worker.load(self._load)
        return time.perf_counter() - begun


class LoopBackend:
    """What one writes with transformers alone: an input at a time, a softmax over the logits of all its positions."""

    def __init__(self, asked: BenchJob, work: BenchWorkload, counter: Counter) -> None:
        from evaluator_serving.encoding import encoder_for

        self._asked, self._work, self._counter = asked, work, counter
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
        dtype = getattr(torch, self._asked.dtype)
        factory = getattr(transformers, kind)
        with weights_here(self._work.model.source) as source:
            begun = time.perf_counter()
            own_code = source.code is not None
            self._network = factory.from_pretrained(source.path, dtype=dtype, trust_remote_code=own_code).eval().to(self._on)
        self._counter.of_embeddings(source.config.get_text_config().vocab_size)
        return {"engine": time.perf_counter() - begun}

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """One forward pass an input."""
        import torch

        from evaluator_serving.answers import assemble
        from evaluator_serving.rows import make_chunk

        begun = time.perf_counter()
        took = {"encode": 0.0, "tokens": 0.0, "rows": 0.0}
        numbers: Numbers = {}
        for key in ids:
            begun_one = time.perf_counter()
            chunk = make_chunk([self._encoder.encode(self._work.requests[key])])
            took["encode"] += time.perf_counter() - begun_one
            values = []
            for row in chunk.merged.rows:
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

    def again(self) -> float:
        """Says nothing of engines."""
        return 0.0


class HarnessBackend:
    """lm-evaluation-harness's log-likelihoods of (context, continuation): `hf` in its fastest batch size here, or `vllm`."""

    def __init__(self, asked: BenchJob, work: BenchWorkload, counter: Counter, *, backend: str) -> None:
        self._asked, self._work, self._counter, self._kind = asked, work, counter, backend
        self._backend: Any = None

    def start(self) -> dict[str, float]:
        """Load the backend."""
        from evaluator_serving.models.resolving import weights_here

        with weights_here(self._work.model.source) as source:
            begun = time.perf_counter()
            path, dtype, own_code = str(source.path), self._asked.dtype, source.code is not None
            if self._kind == "hf":
                few = self._pairs(list(self._work.requests)[: 4 * TRIED])
                self._backend = harness.on_transformers(path, dtype, [pair for _, pair in few], own_code=own_code)
                self._counter.of_embeddings(self._backend.model.config.vocab_size)
            else:
                self._backend = harness.on_vllm(path, dtype, own_code=own_code)
                self._counter.of_scheduler(self._backend.model)
        return {"engine": time.perf_counter() - begun}

    def _pairs(self, ids: Sequence[str]) -> list[tuple[str, harness.Pair]]:
        """Request's id, and a context with one of its continuations."""
        from evaluator_serving.requests import Continuation

        pairs = []
        for key in ids:
            request = self._work.requests[key]
            if not isinstance(request, Continuation):
                raise ValueError("lm-evaluation-harness scores continuations only, of generative models")
            pairs += [(key, (request.context, candidate)) for candidate in request.candidates]
        return pairs

    def score(self, ids: Sequence[str]) -> tuple[Numbers, dict[str, float]]:
        """All their candidates."""
        begun = time.perf_counter()
        pairs = self._pairs(ids)
        numbers: Numbers = {}
        for (key, _), log_p in zip(pairs, harness.log_probabilities(self._backend, [p for _, p in pairs]), strict=True):
            numbers.setdefault(key, []).append(log_p)
        return numbers, {"forward": time.perf_counter() - begun}

    def again(self) -> float:
        """Says nothing of engines."""
        return 0.0


class Ceilings:
    """This machine's rates at the moment, with torch: a large matrix product, and a copy of memory."""

    def __init__(self, asked: BenchJob) -> None:
        import torch

        self._device = ("cuda" if torch.cuda.is_available() else "cpu") if asked.device == "auto" else asked.device
        on_gpu = self._device.startswith("cuda")
        side = 8192 if on_gpu else 2048
        dtype = getattr(torch, asked.dtype if on_gpu and asked.dtype != "int8" else "float32")
        if asked.threads:  # 0 on GPUs
            torch.set_num_threads(asked.threads)
        self._side = side
        self._a, self._b = (torch.randn(side, side, device=self._device).to(dtype) for _ in range(2))
        self._source = torch.ones((1 << 28) if on_gpu else (1 << 25), device=self._device)
        self._target = torch.empty_like(self._source)

    def measure(self) -> dict[str, float]:
        """GFLOP/s, and GB/s read and written; the best of several."""
        import torch

        product = self._best(lambda: torch.mm(self._a, self._b), 6)
        copy = self._best(lambda: self._target.copy_(self._source), 4)
        return {"matrix_gflop_s": 2 * self._side**3 / product / 1e9, "memory_gb_s": 2 * self._source.nbytes / copy / 1e9}

    def _best(self, call: Callable[[], object], times: int) -> float:
        import torch

        found = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            if self._device.startswith("cuda"):
                torch.cuda.synchronize()
            found.append(time.perf_counter() - begun)
        return min(found)


BACKENDS: Mapping[str, Callable[[BenchJob, BenchWorkload, Counter], Backend]] = {
    "engine": EngineBackend,
    "transformers-loop": LoopBackend,
    "lm-eval": lambda asked, work, counter: HarnessBackend(asked, work, counter, backend="hf"),
    "lm-eval-vllm": lambda asked, work, counter: HarnessBackend(asked, work, counter, backend="vllm"),
}
BASELINES = tuple(name for name in BACKENDS if name != "engine")
"""What engines can be measured against."""
CEILINGS = "ceilings"


def serve(asked: BenchJob, lines: Iterator[str], answers: IO[str]) -> None:
    """A backend's whole life."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        work = BenchWorkload.of(asked, Path(folder) / "run")
        counter = Counter()
        backend = BACKENDS[asked.backend](asked, work, counter)
        prepared = time.perf_counter() - began
        start = backend.start()
        backend.score([key for ids in work.slices for key in ids][:TRIED])
        ready = {"start": start, "prepared": prepared, "model": _model(work), "sentences": list(work.sentences)}
        answering.say(answers, ready)
        for line in lines:
            if line.strip() == "again":
                answering.say(answers, {"again": backend.again()})
            else:
                answering.say(answers, answering.measured(counter, partial(backend.score, work.slices[int(line)])))


def serve_ceilings(asked: BenchJob, lines: Iterator[str], answers: IO[str]) -> None:
    """The process that measures the machine itself."""
    ceilings = Ceilings(asked)
    ceilings.measure()
    answering.say(answers, {"ready": True})
    for _ in lines:
        answering.say(answers, ceilings.measure())


def _model(work: BenchWorkload) -> dict[str, Any]:
    """Sizes of the model, and of its work: what a forward token and a read position cost in multiplications."""
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
    from evaluator_serving.rows import merge

    return merge(work.model.encoded).rows


def _reads(work: BenchWorkload) -> int:
    """Positions at which a vocabulary is looked at."""
    return sum(len({position for position, _ in row.lookups}) for row in _rows(work))


def main() -> None:
    """Serve what the first line of input asks."""
    with answering.asked() as (lines, answers):
        asked = BenchJob.parse(next(lines))
        (serve_ceilings if asked.backend == CEILINGS else serve)(asked, lines, answers)


if __name__ == "__main__":
    main()
