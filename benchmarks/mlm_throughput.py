"""Masked language models: all procedures for GEST's first template, interleaved, each in a separate process.

    python benchmarks/mlm_throughput.py [--cases bert-base xlmr-base] [--rows 96] [--repeats 3] [--threads 2] [--ways …]

The backends: the published procedure (batch size 1, one forward pass per word, all logits), transformers in batches of 32 with
all logits (as in evaluation harnesses), transformers' fill-mask pipeline, vLLM's BertForMaskedLM (BERT only), and this
program's engines, transformers in float32, bf16x2 and bfloat16, onnx in float32 and int8. Time is from sentences to
log-probabilities without loading. Each repetition runs every backend once, in a rotating order; medians are shown, with ratios
to the first backend and the largest differences from its log-probabilities. Models have random weights in full shape, exact in
bfloat16 as those of most published models (see masked_models.py); sentences come from GEST in EVALUATOR_DATA, else from the
demo data set.

Each repetition also times large matrix products, in float32 and, if the CPU has units for it, in bfloat16. For the onnx engine
the shares of this peak are reported, for the encoder and for the whole time. Its peak memory is that of a process with the
engine only; the others' is that of their process.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from alone import MIB, alone
from masked_models import make_shape, published_masked, requests
from output import benchmark_parser, write_record
from sides import Numbers, Score, Side, interleaved, opened_engine, peaks, processor, sentences, serve

from evaluator.bench.counter import Counter
from evaluator.bench.measure import versions
from evaluator.bench.process import BackendProcess
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.config import quiet
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer

AIMS = {"bert-base": 7.0, "xlmr-base": 14.0}
WAYS = (
    "published",
    "batched",
    "pipeline",
    "vllm",
    "transformers",
    "transformers-bf16x2",
    "transformers-bfloat16",
    "onnx",
    "onnx-int8",
)
BATCH = 32


# --- the ways -----------------------------------------------------------------------------------------------------


def batched(source: ModelSource) -> Score:
    """Batches in the data's order, padded; logits and log-softmax of every position; both words from one pass."""
    import torch
    import transformers

    tokenizer, model = load_tokenizer(source), transformers.AutoModelForMaskedLM.from_pretrained(source.path).eval()
    he, she = tokenizer.convert_tokens_to_ids(["He", "She"])

    @torch.no_grad()
    def score(texts: Sequence[str]) -> Numbers:
        scores: Numbers = []
        for start in range(0, len(texts), BATCH):
            lines = [f'{tokenizer.mask_token} said: "{text}"' for text in texts[start : start + BATCH]]
            inputs = tokenizer(lines, return_tensors="pt", padding=True)
            log_probs = torch.log_softmax(model(**inputs).logits, dim=-1)
            rows, at = (inputs["input_ids"] == tokenizer.mask_token_id).nonzero(as_tuple=True)
            scores += (log_probs[rows, at, he] - log_probs[rows, at, she]).tolist()
        return scores

    return score


def pipeline(source: ModelSource) -> Score:
    """transformers' fill-mask pipeline with the two words as targets."""
    import transformers

    tokenizer, model = load_tokenizer(source), transformers.AutoModelForMaskedLM.from_pretrained(source.path).eval()
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")

    def score(texts: Sequence[str]) -> Numbers:
        lines = [f'{tokenizer.mask_token} said: "{text}"' for text in texts]
        scores: Numbers = []
        for found in fill(lines, targets=["He", "She"], batch_size=BATCH):
            by_word = {item["token_str"]: math.log(item["score"]) for item in found}
            scores.append(by_word["He"] - by_word["She"])
        return scores

    return score


def vllm(source: ModelSource) -> Score:
    """vLLM's token-wise pooling of BertForMaskedLM: one vector of logits a token."""
    # Before vLLM is imported.
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    import torch
    from vllm import LLM, PoolingParams
    from vllm.inputs import TokensPrompt

    tokenizer = load_tokenizer(source)
    he, she = tokenizer.convert_tokens_to_ids(["He", "She"])
    model = LLM(
        str(source.path), runner="pooling", dtype="float32", enforce_eager=True, disable_log_stats=True, max_model_len=512
    )
    params = PoolingParams(use_activation=False)

    def score(texts: Sequence[str]) -> Numbers:
        lines = [tokenizer(f'{tokenizer.mask_token} said: "{text}"')["input_ids"] for text in texts]
        prompts = [TokensPrompt(prompt_token_ids=ids) for ids in lines]
        outputs = model.encode(prompts, pooling_params=params, pooling_task="token_classify", use_tqdm=False)
        scores: Numbers = []
        for ids, output in zip(lines, outputs, strict=True):
            log_probs = torch.log_softmax(output.outputs.data[ids.index(tokenizer.mask_token_id)].float(), dim=-1)
            scores.append(float(log_probs[he] - log_probs[she]))
        return scores

    return score


def engine(source: ModelSource, way: str, counter: Counter) -> Score:
    """One of this program's engines, by the way that a run takes."""
    name, _, dtype = way.partition("-")
    options = EngineOptions(device="cpu", dtype=dtype or "float32")
    ask = opened_engine(name, source, options, requests(["I am here."]), counter)
    return lambda texts: [he - she for he, she in ask(requests(texts))]


@dataclass(slots=True)
class Meter(Counter):
    """A bench's counts; of the onnx engine also the operations of its matrix products, and the seconds of its two sessions."""

    encoder_flop: float = 0.0
    head_flop: float = 0.0
    encoder_seconds: float = 0.0
    head_seconds: float = 0.0
    config: Any = None

    def reset(self) -> None:
        """Forget what was counted."""
        Counter.reset(self)
        self.encoder_flop = self.head_flop = self.encoder_seconds = self.head_seconds = 0.0

    def record(self) -> dict[str, float]:
        """What was counted."""
        names = ("encoder_flop", "head_flop", "encoder_seconds", "head_seconds")
        return {**Counter.record(self), **({name: getattr(self, name) for name in names} if self.config is not None else {})}

    def of_graphs(self, engine: Any) -> None:
        """Put counters around an engine's runner."""
        Counter.of_graphs(self, engine)
        runner, self.config = engine._runner, engine._source.config
        submit, log_probs = runner.submit, runner._head.log_probs

        def counted_submit(inputs: Any, wanted: Any) -> None:
            began = time.perf_counter()
            submit(inputs, wanted)
            self.encoder_seconds += time.perf_counter() - began
            self.encoder_flop += self._encoder_flop(*inputs["input_ids"].shape, len(wanted))

        def counted_log_probs(states: Any, asked: Any) -> Any:
            began = time.perf_counter()
            values = log_probs(states, asked)
            self.head_seconds += time.perf_counter() - began
            self.head_flop += 2 * len(states) * self.config.vocab_size * self.config.hidden_size
            return values

        runner.submit, runner._head.log_probs = counted_submit, counted_log_probs

    def _encoder_flop(self, batch: int, length: int, masks: int) -> float:
        """What the pruned graph computes, padding included: matrix products only."""
        width, inner, layers = self.config.hidden_size, self.config.intermediate_size, self.config.num_hidden_layers
        tokens = batch * length
        whole = 2 * tokens * (4 * width**2 + 2 * width * inner) + 4 * tokens * length * width
        last = 2 * tokens * 2 * width**2 + 2 * masks * (2 * width**2 + 2 * width * inner) + 4 * masks * length * width
        return (layers - 1) * whole + last + 2 * masks * width**2


def open_way(way: str, folder: str, meter: Meter) -> Score:
    """Load one of WAYS."""
    quiet()
    source = resolve(folder)
    others = {"published": published_masked, "batched": batched, "pipeline": pipeline, "vllm": vllm}
    return others[way](source) if way in others else engine(source, way, meter)


# --- one case -----------------------------------------------------------------------------------------------------


def measure(case: str, texts: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Every way on one model shape, `repeats` times over."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        make_shape(case, folder, texts)
        os.environ["EVALUATOR_CACHE"] = str(Path(temporary) / "cache")
        by_itself = engines_alone(folder, texts, [way for way in arguments.ways if way.startswith("onnx")], arguments.threads)
        parts = [texts] * arguments.repeats
        workers, measured = interleaved(__file__, arguments.ways, str(folder), arguments.threads, parts, device="cpu")
    return {"case": case, "aim": AIMS[case], **digest(workers, measured, by_itself, len(texts))}


def engines_alone(folder: Path, texts: list[str], ways: Sequence[str], threads: int) -> dict[str, Any]:
    """By dtype the peak memory of the onnx engine; what was exported for it is in the cache then, and in no other's time."""
    from evaluator_serving.onnx.export_cache import cached_export

    source, found = resolve(str(folder)), {}
    for dtype in (way.partition("-")[2] or "float32" for way in ways):
        cached_export(source, dtype, "masked")
        found[dtype] = alone(source, requests(texts), dtype, threads)
    return found


def digest(
    workers: Sequence[BackendProcess[Side]], measured: Sequence[Mapping[str, float]], alone: Mapping[str, Any], count: int
) -> dict[str, Any]:
    """Medians, ratios to the first way, largest differences from its scores, shares of the peak."""
    ran = {worker.job.name: list(worker.slices.values()) for worker in workers if not worker.error}
    reference, ways = next(iter(ran.values()), []), {}
    for worker in workers:
        if worker.error:
            ways[worker.job.name] = {"failed": worker.error}
            continue
        answers = ran[worker.job.name]
        told: dict[str, Any] = {
            "ms_a_sentence": round(1e3 * statistics.median(one["wall"] for one in answers) / count, 2),
            "ms_fastest_slowest": [round(1e3 * pick(one["wall"] for one in answers) / count, 2) for pick in (min, max)],
            "peak_mib": round(max(one["host"] for one in answers) / MIB),
        }
        # Paired within a repetition, where the machine was equally busy.
        told["ratio"] = round(statistics.median(a["wall"] / b["wall"] for a, b in zip(reference, answers, strict=True)), 2)
        told["max_difference"] = max(abs(a - b) for a, b in zip(answers[0]["numbers"], reference[0]["numbers"], strict=True))
        ways[worker.job.name] = told | (rates(answers, peaks(measured)) if "encoder_flop" in answers[0] else {})
    found = {
        f"{name}_peak_gflop_s".lstrip("_"): [round(peak, 1) for peak in peaks(measured, name)] for name in ("", "bfloat16")
    }
    return {**found, "ways": ways, "engine_alone": dict(alone)}


def rates(answers: Sequence[Mapping[str, float]], peaks: Sequence[float]) -> dict[str, Any]:
    """Of the onnx engine: its encoder's products a second while it runs, and all of them over the whole time."""
    encoder = [one["encoder_flop"] / one["encoder_seconds"] / 1e9 for one in answers]
    whole = [(one["encoder_flop"] + one["head_flop"]) / one["wall"] / 1e9 for one in answers]
    told: dict[str, Any] = {}
    for name, reached in (("encoder", encoder), ("all", whole)):
        told[f"{name}_gflop_s"] = round(statistics.median(reached), 1)
        told[f"{name}_share_of_peak"] = round(statistics.median(r / p for r, p in zip(reached, peaks, strict=True)), 3)
    return told | {"seconds_in": {name: answers[0][f"{name}_seconds"] for name in ("encoder", "head")}}


def table(results: list[dict[str, Any]]) -> str:
    """The digest as text."""
    lines = []
    for result in results:
        lines.append(f"{result['case']} (aim: onnx {result['aim']:g}×; matrix peak {result['peak_gflop_s']} GFLOP/s)")
        lines.append(f"  {'way':22}{'ms/sentence':>12}{'fastest':>9}{'slowest':>9}{'ratio':>8}{'peak MiB':>10}{'max |Δ|':>10}")
        for way, r in result["ways"].items():
            if "failed" in r:
                lines.append(f"  {way:22} did not run: {r['failed']}")
                continue
            fastest, slowest = r["ms_fastest_slowest"]
            lines.append(
                f"  {way:22}{r['ms_a_sentence']:>12.1f}{fastest:>9.1f}{slowest:>9.1f}{r['ratio']:>7.2f}×"
                f"{r['peak_mib']:>10}{r['max_difference']:>10.1e}"
            )
        for way in ("onnx", "onnx-int8"):
            r = result["ways"].get(way, {})
            if "encoder_share_of_peak" in r:
                lines.append(
                    f"  {way}: encoder {r['encoder_gflop_s']:.0f} GFLOP/s = {r['encoder_share_of_peak']:.0%} of the peak, "
                    f"everything {r['all_gflop_s']:.0f} = {r['all_share_of_peak']:.0%}"
                )
        for dtype, r in result["engine_alone"].items():
            if "failed" not in r:
                lines.append(
                    f"  engine alone ({dtype}): peak {r['peak_mib']:.0f} MiB ({r['before_mib']:.0f} before loading), "
                    f"weights {r['weights_mib']:.0f} MiB, {r['peak_mib'] / r['weights_mib']:.2f}×"
                )
    return "\n".join(lines)


def main() -> None:
    """Measure, write JSON, print the table."""
    parser = benchmark_parser(__doc__, __file__, threads=True)
    parser.add_argument("--cases", nargs="+", choices=list(AIMS), default=list(AIMS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, help="folder of public data sets (default: EVALUATOR_DATA)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve({way: partial(open_way, way) for way in WAYS}, Meter(), sentences(8))
        return
    if arguments.data:
        os.environ["EVALUATOR_DATA"] = str(arguments.data)
    texts = sentences(arguments.rows)
    results = [measure(case, texts, arguments) for case in arguments.cases]
    machine = {**processor(), "threads": arguments.threads, "sentences": len(texts)}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine, "versions": versions(), "results": results}
    write_record(arguments.json, report)
    print(f"{machine['cpu']}, {machine['bfloat16']}\n{table(results)}")


if __name__ == "__main__":
    main()
