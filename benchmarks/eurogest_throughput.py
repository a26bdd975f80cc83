"""EuroGEST with a generative model, four ways: the released procedure, and this project's engines.

Every way gets the same pairs of texts (300, spread over the stereotypes of three languages) and gives each pair's difference of
log-probabilities:

- `loop`: the released procedure, a forward pass a text, log-softmax over the logits of all its positions;
- `transformers`, `vllm`, `onnx`: this project's engines, by the way that a run takes: a request a pair, its common beginning
  once.

As in glm_throughput.py each way lives in a process of its own, and slice by slice every way is timed in turn. Compare the
ratios only. `most` is what an engine would reach that does the products of this work at the measured peak of a large one, and
nothing else. The largest difference from the loop is over the pairs that have a beginning in common: the others are read behind
another first token here.

    EVALUATOR_DATA=DATA python benchmarks/eurogest_throughput.py [--pairs 300] [--languages cs,de,fi] [--json FILE]
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glm_throughput import Counter, Numbers, Worker, matrix_peak, serve

from evaluator.bench.measure import versions
from evaluator.demo import demo_model
from evaluator.tasks.eurogest import EuroGest
from evaluator.tasks.pair_requests import compared, split
from evaluator.vocabulary import DataSource

LANGUAGES = ("cs", "de", "fi")
"""Most sentences are pairs that differ in mid-sentence, some, none."""

WAYS = ("loop", "transformers", "vllm", "onnx")
AIMS = {"transformers": 5.0, "vllm": 6.0, "onnx": 5.0}
"""How many times as fast as the loop each engine is to be."""

Pair = Sequence[str]
Score = Callable[[Sequence[Pair]], Numbers]


def pairs(count: int, languages: Sequence[str]) -> list[tuple[str, str]]:
    """Both texts of so many sentences, as a run with a limit takes them."""
    samples = EuroGest("eurogest", tuple(sorted(languages))).load_limited(DataSource(), count)
    return samples.frame.sort("order").select("masculine", "feminine").rows()


def open_loop(model: str, counter: Counter) -> Score:
    """The released procedure: sums of the two texts' next-token log-probabilities, one text at a time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval().to(device)
    counter.of_embeddings(network.config.vocab_size)

    def total(text: str) -> float:
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt")["input_ids"].to(device)
            scores = torch.log_softmax(network(ids).logits[0, :-1], dim=-1)
            return float(scores.gather(-1, ids[0, 1:, None]).sum())

    return lambda chosen: [total(masculine) - total(feminine) for masculine, feminine in chosen]


def open_ours(name: str, model: str, counter: Counter) -> Score:
    """This project's engine, from texts to scores as a run does it."""
    from evaluator_serving.answers import assemble
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.resolving import resolve_here
    from evaluator_serving.opening import open_engine
    from evaluator_serving.rows import Encoded, chunks, merge

    source = resolve_here(model)
    encoder = encoder_for(source)

    def encode(chosen: Sequence[Pair]) -> list[Encoded]:
        return [encoder.encode(compared(masculine, feminine)) for masculine, feminine in chosen]

    engine = open_engine(name, source, EngineOptions(), merge(encode(pairs(10**6, LANGUAGES))).rows)
    if name == "onnx":
        counter.of_graphs(engine)
    elif name == "vllm":
        counter.of_scheduler(engine._llm)  # type: ignore[attr-defined]
    else:
        counter.of_embeddings(source.config.get_text_config().vocab_size)
    weights = sum(file.stat().st_size for file in source.path.glob("*.safetensors")) // 4
    tokens = engine.chunk_tokens(weights, engine.device_kind)

    def score(chosen: Sequence[Pair]) -> Numbers:
        encoded = encode(chosen)
        found = {
            answer.request: sum(answer.logprobs[0]) - sum(answer.logprobs[1])
            for chunk in chunks(encoded, tokens=tokens)
            for answer in assemble(chunk, engine.score(chunk.merged.rows))
        }
        return [found[item.request] for item in encoded]

    return score


OPEN: dict[str, Callable[[str, Counter], Score]] = {
    "loop": open_loop,
    "transformers": lambda model, counter: open_ours("transformers", model, counter),
    "vllm": lambda model, counter: open_ours("vllm", model, counter),
    "onnx": lambda model, counter: open_ours("onnx", model, counter),
}


def measure(model: str, chosen: Sequence[Pair], threads: int, slices: int) -> tuple[list[Worker], list[float]]:
    """Every way on every slice, one at a time, in an order that changes from slice to slice; before each slice the peak."""
    import torch

    torch.set_num_threads(threads)
    peaks = []
    workers = [Worker.start(way, model, threads, __file__) for way in WAYS]
    running = [worker for worker in workers if not worker.error]
    size = -(-len(chosen) // slices)
    for index in range(slices):
        peaks.append(matrix_peak())
        turn = index % len(running)
        for worker in running[turn:] + running[:turn]:
            worker.ask(index, chosen[index * size : (index + 1) * size])
    for worker in workers:
        worker.close()
    return workers, peaks


def result(worker: Worker, loop: Worker, chosen: Sequence[Pair]) -> dict[str, Any]:
    """What is reported of one way."""
    if worker.error:
        return {"way": worker.way, "error": worker.error}
    slices = [answer["wall"] / loop.slices[index]["wall"] for index, answer in worker.slices.items()]
    alike = [bool(split(*pair)[0]) for pair in chosen]
    both = zip(worker.numbers(), loop.numbers(), alike, strict=True)
    return {
        "way": worker.way,
        "ms_a_pair": round(1e3 * worker.total("wall") / len(chosen), 2),
        "tokens_a_pair": round(worker.total("tokens") / len(chosen), 2),
        "faster_than_loop": round(loop.total("wall") / worker.total("wall"), 2),
        "faster_than_loop_slowest_fastest_slice": [round(1 / max(slices), 2), round(1 / min(slices), 2)],
        "faster_than_loop_cpu": round(loop.total("cpu") / worker.total("cpu"), 2),
        "load_s": round(worker.load_s, 1),
        "max_difference": max(abs(a - b) for a, b, compare in both if compare),
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="codes with commas between them")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--model", help="folder, GGUF file or hub id (default: the demo model)")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results") / "eurogest_throughput.json")
    parser.add_argument("--serve", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.model, OPEN, pairs(6, LANGUAGES))
        return
    from evaluator_serving.models.resolving import resolve_here

    model = str(resolve_here(arguments.model or str(demo_model())).path)
    chosen = pairs(arguments.pairs, arguments.languages.split(","))
    workers, peaks = measure(model, chosen, arguments.threads, arguments.slices)
    results = [result(worker, workers[0], chosen) for worker in workers]
    reached = {r["way"]: r["faster_than_loop"] >= AIMS[r["way"]] for r in results if r["way"] in AIMS and "error" not in r}
    machine = {"cpu": platform.processor() or platform.machine(), "threads": arguments.threads}
    inputs = {"pairs": len(chosen), "languages": arguments.languages}
    least = [sum(answer["flop"] / peaks[index] / 1e9 for index, answer in worker.slices.items()) for worker in workers]
    report = {
        "machine": {**machine, "matrix_peak_gflop_s": [round(peak, 1) for peak in peaks]},
        "inputs": inputs,
        "versions": versions(),
        "results": results,
        "aims": AIMS,
        "reached": reached,
        "most": {
            w.way: round(workers[0].total("wall") / seconds, 2) for w, seconds in zip(workers, least, strict=True) if seconds
        },
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{'way':13} {'wall':>10} {'tokens':>7} {'× loop':>7} {'by cpu':>7} {'load':>6} {'max |Δ|':>8}")
    for r in results:
        if "error" in r:
            print(f"{r['way']:13} can't run here: {r['error']}")
            continue
        print(
            f"{r['way']:13} {r['ms_a_pair']:7.1f} ms {r['tokens_a_pair']:7.1f} {r['faster_than_loop']:7.2f} "
            f"{r['faster_than_loop_cpu']:7.2f} {r['load_s']:4.0f} s {r['max_difference']:8.1e}"
        )
    print(json.dumps({key: report[key] for key in ("aims", "reached", "most")}))


if __name__ == "__main__":
    main()
