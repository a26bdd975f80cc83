"""EuroGEST with a generative model: the released procedure against this project's engines.

    EVALUATOR_DATA=DATA python benchmarks/eurogest_throughput.py [--pairs 300] [--languages cs,de,fi] [--json FILE]

All backends compute the difference of log-probabilities of the same pairs of texts (300, spread over the stereotypes of three
languages):

- `loop`: the released procedure, one forward pass per text and log-softmax at all positions;
- `transformers`, `vllm`, `onnx`: this project's engines as in a run, with the common beginning of a pair computed once.

Backends run in separate processes and take turns slice by slice, as in glm_throughput.py. `most` is the upper bound for an
engine that computes onnx's tokens at the measured peak of a large matrix product. The largest difference from the loop covers
pairs with a common beginning; the others have another first token here. Only the ratios are comparable between machines.
"""

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from glm_throughput import Counter
from output import benchmark_parser, write_record
from sides import Score, Side, cut, interleaved, numbers, opened_engine, peaks, serve

from evaluator.bench.measure import versions
from evaluator.bench.process import BackendProcess
from evaluator.demo import demo_model
from evaluator.tasks.eurogest import EuroGest, EuroGestParameters
from evaluator.tasks.pair_requests import compared, split
from evaluator.vocabulary import DataSource

LANGUAGES = ("cs", "de", "fi")
"""Most sentences are pairs that differ in mid-sentence, some, none."""

WAYS = ("loop", "transformers", "vllm", "onnx")
AIMS = {"transformers": 5.0, "vllm": 6.0, "onnx": 5.0}
"""How many times as fast as the loop each engine is to be."""

Pair = Sequence[str]


def pairs(count: int, languages: Sequence[str]) -> list[tuple[str, str]]:
    """Both texts of so many sentences, as a run with a limit takes them."""
    samples = EuroGest("eurogest", EuroGestParameters(languages=tuple(sorted(languages)))).load_limited(DataSource(), count)
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
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.resolving import resolve_here

    known = [compared(*pair) for pair in pairs(10**6, LANGUAGES)]
    ask = opened_engine(name, resolve_here(model), EngineOptions(), known, counter)
    return lambda chosen: [first - second for first, second in ask([compared(*pair) for pair in chosen])]


OPEN: dict[str, Callable[[str, Counter], Score]] = {
    "loop": open_loop,
    **{way: partial(open_ours, way) for way in WAYS[1:]},
}


def result(worker: BackendProcess[Side], loop: BackendProcess[Side], chosen: Sequence[Pair]) -> dict[str, Any]:
    """What is reported of one way."""
    if worker.error:
        return {"way": worker.job.name, "error": worker.error}
    slices = [answer["wall"] / loop.slices[index]["wall"] for index, answer in worker.slices.items()]
    alike = [bool(split(*pair)[0]) for pair in chosen]
    both = zip(numbers(worker), numbers(loop), alike, strict=True)
    return {
        "way": worker.job.name,
        "ms_a_pair": round(1e3 * worker.total("wall") / len(chosen), 2),
        "tokens_a_pair": round(worker.total("tokens") / len(chosen), 2),
        "faster_than_loop": round(loop.total("wall") / worker.total("wall"), 2),
        "faster_than_loop_slowest_fastest_slice": [round(1 / max(slices), 2), round(1 / min(slices), 2)],
        "faster_than_loop_cpu": round(loop.total("cpu") / worker.total("cpu"), 2),
        "load_s": round(worker.ready["load_s"], 1),
        "max_difference": max(abs(a - b) for a, b, compare in both if compare),
    }


def least_seconds(worker: BackendProcess[Side], onnx: BackendProcess[Side], peaks: Sequence[float]) -> float:
    """What its tokens' products would take at the peak; 0 where onnx didn't count them."""
    seconds = 0.0
    for part, counted in onnx.slices.items():
        more = worker.slices[part]["tokens"] - counted["tokens"] if part in worker.slices else 0.0
        seconds += (counted["flop"] + more * counted["flop_a_token"]) / peaks[part] / 1e9
    return seconds


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = benchmark_parser(__doc__, __file__, model=True, threads=True)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="comma-separated codes")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(OPEN, Counter(), pairs(6, LANGUAGES))
        return
    from evaluator_serving.models.resolving import resolve_here

    model = str(resolve_here(arguments.model or str(demo_model())).path)
    chosen = pairs(arguments.pairs, arguments.languages.split(","))
    workers, rates = interleaved(__file__, WAYS, model, arguments.threads, cut(chosen, arguments.slices))
    results = [result(worker, workers[0], chosen) for worker in workers]
    reached = {r["way"]: r["faster_than_loop"] >= AIMS[r["way"]] for r in results if r["way"] in AIMS and "error" not in r}
    machine = {"cpu": platform.processor() or platform.machine(), "threads": arguments.threads}
    inputs = {"pairs": len(chosen), "languages": arguments.languages}
    least = {worker.job.name: least_seconds(worker, workers[-1], peaks(rates)) for worker in workers[1:]}
    report = {
        "machine": {**machine, "matrix_peak_gflop_s": [round(peak, 1) for peak in peaks(rates)]},
        "inputs": inputs,
        "versions": versions(),
        "results": results,
        "aims": AIMS,
        "reached": reached,
        "most": {way: round(workers[0].total("wall") / seconds, 2) for way, seconds in least.items() if seconds},
    }
    write_record(arguments.json, report)
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
