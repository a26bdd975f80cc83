"""GEST with a generative model: the published loop, lm-evaluation-harness with both backends, and this project's engines.

    python benchmarks/glm_throughput.py [--rows 240] [--threads 2] [--model SPEC] [--ways …] [--json FILE]
    python benchmarks/glm_throughput.py --shape qwen2-0.5b --ways loop transformers vllm onnx --rows 60 --json FILE

All backends compute log P of ` he`, ` she` after `"s",` and of ` man`, ` woman` after `"s", the` for the same sentences:

- `loop`: the published procedure, one context at a time with softmax at all positions;
- `lm-eval hf`, `lm-eval vllm`: the harness's log-likelihoods, with its best batch size (`pip install lm-eval`);
- `transformers`, `vllm`, `onnx`, also in another dtype than float32 (`onnx int8`): this project's engines as in a run.

All score the same weights, which are exact in bfloat16 as those of most published models: the demo model's are rounded first.

Each backend runs in a separate process and loads before anything is timed. The sentences are cut into slices; backends take
turns slice by slice, in a rotating order. Reported are wall and CPU time per sentence, computed tokens (including padding),
peak memory, and the largest difference from the loop (for int8, the drift). Large matrix products are timed between slices, in
float32 and, if the CPU has units for it, in bfloat16. The share of the dtype's peak is reported for onnx while its graphs run,
for transformers over the whole time; for onnx also the time at full peak, and the peak memory of a process with the engine
only, relative to the weights. A backend that cannot run is skipped with the reason. `--shape` uses random weights in a
published shape with the demo model's tokenizer. Only the ratios are comparable between machines.
"""

import argparse
import functools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alone import alone
from output import benchmark_parser, write_record
from sides import Numbers, Score, Side, cut, interleaved, numbers, opened_engine, peaks, processor, sentences, serve

from evaluator.bench import harness
from evaluator.bench.counter import Counter as BenchCounter
from evaluator.bench.measure import versions
from evaluator.bench.process import BackendProcess
from evaluator.demo import demo_model
from evaluator_serving.requests import Continuation

OURS = ("transformers", "vllm", "onnx")
IN_OTHER_DTYPES = ("transformers bf16x2", "transformers bfloat16", "onnx int8")
WAYS = ("loop", "lm-eval hf", "lm-eval vllm", *OURS, *IN_OTHER_DTYPES)
AIMS = {"loop": 8.0, "lm-eval": 2.8}
"""How many times as fast as these the better of our engines is to be."""

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2-0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    }
}
"""Configurations of Qwen2 models."""


def questions(text: str) -> list[Continuation]:
    """What is asked of a sentence."""
    return [Continuation(f'"{text}",', (" he", " she")), Continuation(f'"{text}", the', (" man", " woman"))]


def pairs(texts: Sequence[str]) -> list[harness.Pair]:
    """The same as contexts and words, four a sentence."""
    return [(asked.context, word) for text in texts for asked in questions(text) for word in asked.candidates]


# --- the ways, each in a process of its own -------------------------------------------------------------------------


@dataclass(slots=True)
class Counter(BenchCounter):
    """A bench's counts; of the onnx engine also the operations of its matrix products, and their seconds."""

    flop: float = 0.0
    seconds: float = 0.0
    flop_a_token: float = 0.0
    """Of the layers, without the vocabulary."""

    def reset(self) -> None:
        """Forget what was counted."""
        BenchCounter.reset(self)
        self.flop = self.seconds = 0.0

    def record(self) -> dict[str, float]:
        """What was counted."""
        counts = {"tokens": self.tokens, "flop": self.flop, "seconds": self.seconds, "flop_a_token": self.flop_a_token}
        return {**BenchCounter.record(self), **counts}

    def of_graphs(self, engine: Any) -> None:
        """Count what goes through the onnx engine's graphs; attention's own products, a few percent, aren't counted."""
        import onnx

        self.counts = True
        graph = onnx.load(engine._folder / "plain.onnx", load_external_data=False).graph
        sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer if len(tensor.dims) == 2}
        layers = {name: size for name, size in sizes.items() if name[0].isdigit() and name.endswith((".weight", ".int8"))}
        last = max(int(name.partition(".")[0]) for name in layers)
        pruned = sum(size for name, size in layers.items() if name.startswith(f"{last}.") and ".qkv." not in name)
        whole = sum(layers.values()) - pruned
        head = sum(size for name, size in sizes.items() if name.startswith("vocabulary.weight."))
        self.flop_a_token = 2.0 * whole
        runner = engine._runner
        submit, collect = runner.submit, runner.collect

        def counted_submit(inputs: Any, wanted: Any) -> None:
            begun = time.perf_counter()
            submit(inputs, wanted)
            self.seconds += time.perf_counter() - begun
            self.add(inputs["input_ids"].size)
            self.flop += 2.0 * (inputs["input_ids"].size * whole + len(wanted) * (pruned + head))

        def counted_collect() -> Any:
            begun = time.perf_counter()
            values = collect()
            self.seconds += time.perf_counter() - begun
            return values

        runner.submit, runner.collect = counted_submit, counted_collect


def open_loop(model: str, counter: Counter) -> Score:
    """The published procedure."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval().to(device)
    counter.of_embeddings(network.config.vocab_size)
    words = [[tokenizer(word)["input_ids"][-1] for word in pair] for pair in ((" he", " she"), (" man", " woman"))]

    def score(texts: Sequence[str]) -> Numbers:
        numbers = []
        for text in texts:
            for context, pair in zip((f'"{text}",', f'"{text}", the'), words, strict=True):
                with torch.no_grad():
                    inputs = tokenizer(context, return_tensors="pt").to(device)
                    probabilities = network(**inputs).logits.softmax(dim=-1)[0, -1]
                numbers += [float(torch.log(probabilities[word])) for word in pair]
        return numbers

    return score


def open_harness_hf(model: str, counter: Counter) -> Score:
    """lm-evaluation-harness on transformers, in the batch size that is fastest here on a few sentences."""
    backend = harness.on_transformers(model, "float32", pairs(sentences(32)))
    counter.of_embeddings(backend.model.config.vocab_size)
    return lambda texts: harness.log_probabilities(backend, pairs(texts))


def open_harness_vllm(model: str, counter: Counter) -> Score:
    """lm-evaluation-harness on vLLM, with the same start-up options as our engine has."""
    backend = harness.on_vllm(model, "float32", max_length=256)
    counter.of_scheduler(backend.model)
    return lambda texts: harness.log_probabilities(backend, pairs(texts))


def open_ours(name: str, model: str, counter: Counter) -> Score:
    """This project's engine, from sentences to log-probabilities as a run does it."""
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.resolving import resolve_here

    def asked(texts: Sequence[str]) -> list[Continuation]:
        return [question for text in texts for question in questions(text)]

    name, _, dtype = name.partition(" ")
    ask = opened_engine(name, resolve_here(model), EngineOptions(dtype=dtype or "float32"), asked(sentences(10**6)), counter)
    return lambda texts: [number for numbers in ask(asked(texts)) for number in numbers]


OPEN: dict[str, Callable[[str, Counter], Score]] = {
    "loop": open_loop,
    "lm-eval hf": open_harness_hf,
    "lm-eval vllm": open_harness_vllm,
    **{way: functools.partial(open_ours, way) for way in (*OURS, *IN_OTHER_DTYPES)},
}


def bfloat16_demo(folder: Path) -> Path:
    """The demo model with its weights rounded to bfloat16, saved into `folder`: as models are published."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evaluator_serving.models.resolving import resolve_here

    demo = resolve_here(str(demo_model())).path
    AutoModelForCausalLM.from_pretrained(demo, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo).save_pretrained(folder)
    return folder


def shaped_model(shape: str, folder: Path) -> Path:
    """A random-weight model in one of SHAPES, in bfloat16, saved into `folder`."""
    import torch
    import transformers
    from transformers import AutoTokenizer

    from evaluator_serving.models.resolving import resolve_here

    torch.manual_seed(0)
    config = transformers.Qwen2Config(**SHAPES[shape], architectures=["Qwen2ForCausalLM"])
    transformers.Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(resolve_here(str(demo_model())).path).save_pretrained(folder)
    return folder


def result(
    worker: BackendProcess[Side], loop: BackendProcess[Side], count: int, peaks: Sequence[float], sizes: tuple[float, float]
) -> dict[str, Any]:
    """What is reported of one way. `sizes`: numbers of the model's layers and of its vocabulary's matrix."""
    if worker.error:
        return {"way": worker.job.name, "error": worker.error}
    slices = [answer["wall"] / loop.slices[index]["wall"] for index, answer in worker.slices.items()]
    differences = (abs(a - b) for a, b in zip(numbers(worker), numbers(loop), strict=True))
    busy = worker.total("seconds")
    rates = {"gflop_s": round(worker.total("flop") / busy / 1e9, 1)} if busy else {}
    if rates and "int8" not in worker.job.name:
        shares = [answer["flop"] / answer["seconds"] / 1e9 / peaks[index] for index, answer in worker.slices.items()]
        rates["share_of_peak"] = round(sum(shares) / len(shares), 3)
        at_peak = sum(answer["flop"] / peaks[index] for index, answer in worker.slices.items())
        rates["ms_a_sentence_at_peak"] = round(at_peak / count / 1e6, 2)
    if worker.job.name.startswith("transformers"):
        # A sentence is read at two positions: the vocabulary is computed there alone.
        flop = 2 * (worker.total("tokens") * sizes[0] + 2 * count * sizes[1])
        rates["gflop_s"] = round(flop / worker.total("wall") / 1e9, 1)
        rates["share_of_peak"] = round(rates["gflop_s"] / statistics.median(peaks), 3)
    return {
        "way": worker.job.name,
        **rates,
        "ms_a_sentence": round(1e3 * worker.total("wall") / count, 2),
        "cpu_ms_a_sentence": round(1e3 * worker.total("cpu") / count, 2),
        "tokens_a_sentence": round(worker.total("tokens") / count, 2),
        "faster_than_loop": round(loop.total("wall") / worker.total("wall"), 2),
        "faster_than_loop_slowest_fastest_slice": [round(1 / max(slices), 2), round(1 / min(slices), 2)],
        "faster_than_loop_cpu": round(loop.total("cpu") / worker.total("cpu"), 2),
        "load_s": round(worker.ready["load_s"], 1),
        "peak_gib": round(max(answer["host"] for answer in worker.slices.values()) / (1 << 30), 2),
        "max_difference": max(differences),
    }


def compare(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The better of our engines against the loop and against the harness's better backend, and the aims."""
    ran = {r["way"]: r for r in results if "error" not in r}
    ours = {way: ran[way] for way in OURS if way in ran}
    harness = [r for way, r in ran.items() if way.startswith("lm-eval")]
    best = min(ours.values(), key=lambda r: float(r["ms_a_sentence"]))
    found: dict[str, Any] = {"best_of_ours": best["way"], "ratio_to_loop": best["faster_than_loop"], "aims": AIMS}
    if harness:
        theirs = min(harness, key=lambda r: float(r["ms_a_sentence"]))
        found["best_of_lm_eval"] = theirs["way"]
        found["ratio_to_lm_eval"] = round(theirs["ms_a_sentence"] / best["ms_a_sentence"], 2)
        found["ratio_to_lm_eval_cpu"] = round(theirs["cpu_ms_a_sentence"] / best["cpu_ms_a_sentence"], 2)
    others = [r["tokens_a_sentence"] for way, r in ran.items() if way not in (*OURS, *IN_OTHER_DTYPES)]
    for other in ("transformers", "vllm"):
        if "onnx" in ours and other in ours:
            found[f"onnx_over_{other}"] = round(ours[other]["ms_a_sentence"] / ours["onnx"]["ms_a_sentence"], 2)
            found[f"onnx_over_{other}_cpu"] = round(ours[other]["cpu_ms_a_sentence"] / ours["onnx"]["cpu_ms_a_sentence"], 2)
    for way in IN_OTHER_DTYPES:
        if "onnx" in ours and way in ran:
            found[f"{way} over onnx"] = round(ours["onnx"]["ms_a_sentence"] / ran[way]["ms_a_sentence"], 2)
    if "onnx" in ours and "transformers" in ours:
        # These products in float32 at the measured peak, and nothing besides: no engine can be faster on this machine.
        most = ours["transformers"]["ms_a_sentence"] / ours["onnx"]["ms_a_sentence_at_peak"]
        found["onnx_over_transformers_at_peak"] = round(most, 2)
    found["fewest_tokens"] = min(r["tokens_a_sentence"] for r in ours.values()) < min(others, default=math.inf)
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = benchmark_parser(__doc__, __file__, model=True, threads=True)
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--shape", choices=SHAPES, help="a model of random weights instead")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the first is what the others are compared with")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(OPEN, Counter(), sentences(8))
        return
    from evaluator_serving.models.resolving import resolve_here

    texts = sentences(arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.model:
            model = str(resolve_here(arguments.model).path)
        else:
            made = Path(folder) / "model"
            model = str(shaped_model(arguments.shape, made) if arguments.shape else bfloat16_demo(made))
            os.environ["EVALUATOR_CACHE"] = str(Path(folder) / "cache")  # its graph isn't kept
        source = resolve_here(model)
        text = source.config.get_text_config()
        vocabulary = float(text.vocab_size * text.hidden_size)
        workers, rates = interleaved(__file__, arguments.ways, model, arguments.threads, cut(texts, arguments.slices))
        few = [question for text in texts[:32] for question in questions(text)]
        by_itself = alone(source, few, "float32", arguments.threads) if "onnx" in arguments.ways else None
    sizes = source.parameters - vocabulary, vocabulary
    results = [result(worker, workers[0], len(texts), peaks(rates, worker.job.name), sizes) for worker in workers]
    machine: dict[str, Any] = {**processor(), "threads": arguments.threads, "sentences": len(texts)}
    machine["matrix_peak_gflop_s"] = [round(peak, 1) for peak in peaks(rates)]
    machine["bfloat16_peak_gflop_s"] = [round(peak, 1) for peak in peaks(rates, "bfloat16")]
    report = {"model": arguments.model or arguments.shape or "SmolLM2-135M-Instruct, its weights rounded to bfloat16"}
    report |= {"machine": machine, "versions": versions(), "results": results, "comparison": compare(results)}
    report["onnx_engine_alone"] = by_itself
    write_record(arguments.json, report)
    print(f"{machine['cpu']}, {machine['bfloat16']}")
    print(f"{'way':22} {'wall':>9} {'cpu':>9} {'tokens':>7} {'× loop':>7} {'by cpu':>7} {'load':>6} {'peak':>9} {'max |Δ|':>8}")
    for r in results:
        if "error" in r:
            print(f"{r['way']:22} can't run here: {r['error']}")
            continue
        print(
            f"{r['way']:22} {r['ms_a_sentence']:6.1f} ms {r['cpu_ms_a_sentence']:6.1f} ms {r['tokens_a_sentence']:7.1f} "
            f"{r['faster_than_loop']:7.2f} {r['faster_than_loop_cpu']:7.2f} {r['load_s']:4.0f} s {r['peak_gib']:5.2f} GiB "
            f"{r['max_difference']:8.1e}" + (f" {r['share_of_peak']:.0%} of the peak" if "share_of_peak" in r else "")
        )
    if by_itself:
        print(f"onnx engine alone: {json.dumps(by_itself)}")
    print(json.dumps(report["comparison"]))


if __name__ == "__main__":
    main()
