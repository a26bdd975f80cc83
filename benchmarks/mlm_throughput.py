"""Masked language models: every way to score GEST's first template, interleaved, each in a process of its own.

    python benchmarks/mlm_throughput.py [--cases bert-base xlmr-base] [--rows 96] [--repeats 3] [--threads 2] [--ways …]

The ways: the published procedure (batch 1, a pass for each word, all logits), transformers in batches of 32 with all logits
(what evaluation harnesses do), transformers' fill-mask pipeline, vLLM's BertForMaskedLM (all logits of all tokens; BERT only),
and this program's transformers and onnx engines, the latter in float32 and int8. Time is from sentences to log-probabilities,
tokenizing included, loading not. A repetition runs each way once, one after the other; medians of the repetitions are shown.
Models are random weights in full shape (see reference_loop.py); sentences come from GEST under --data or EVALUATOR_DATA.

Each repetition also times a large float32 matrix product in torch: this machine's peak at that moment. For the onnx engine the
share of it is given that the encoder's arithmetic reaches while the encoder runs, and that all arithmetic reaches over the
whole time. Its peak memory is that of a process that is given token ids and loads nothing but the engine; the others' is
their process's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

AIMS = {"bert-base": 7.0, "xlmr-base": 14.0}
WAYS = ("published", "batched", "pipeline", "vllm", "transformers", "onnx", "onnx-int8")
BATCH = 32

Scores = list[float]
Way = Callable[[Sequence[str]], Scores]


# --- the ways -----------------------------------------------------------------------------------------------------


def batched(source: Any) -> Way:
    """Batches in the data's order, padded; logits and log-softmax of every position; both words from one pass."""
    import torch
    import transformers

    tokenizer, model = _tokenizer(source), transformers.AutoModelForMaskedLM.from_pretrained(source.path).eval()
    he, she = tokenizer.convert_tokens_to_ids(["He", "She"])

    @torch.no_grad()
    def score(texts: Sequence[str]) -> Scores:
        scores: Scores = []
        for start in range(0, len(texts), BATCH):
            lines = [f'{tokenizer.mask_token} said: "{text}"' for text in texts[start : start + BATCH]]
            inputs = tokenizer(lines, return_tensors="pt", padding=True)
            log_probs = torch.log_softmax(model(**inputs).logits, dim=-1)
            rows, at = (inputs["input_ids"] == tokenizer.mask_token_id).nonzero(as_tuple=True)
            scores += (log_probs[rows, at, he] - log_probs[rows, at, she]).tolist()
        return scores

    return score


def pipeline(source: Any) -> Way:
    """transformers' fill-mask pipeline with the two words as targets."""
    import math

    import transformers

    tokenizer, model = _tokenizer(source), transformers.AutoModelForMaskedLM.from_pretrained(source.path).eval()
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")

    def score(texts: Sequence[str]) -> Scores:
        lines = [f'{tokenizer.mask_token} said: "{text}"' for text in texts]
        scores: Scores = []
        for found in fill(lines, targets=["He", "She"], batch_size=BATCH):
            by_word = {item["token_str"]: math.log(item["score"]) for item in found}
            scores.append(by_word["He"] - by_word["She"])
        return scores

    return score


def vllm(source: Any) -> Way:
    """vLLM's token-wise pooling of BertForMaskedLM: one vector of logits a token."""
    import torch
    from vllm import LLM, PoolingParams
    from vllm.inputs import TokensPrompt

    tokenizer = _tokenizer(source)
    he, she = tokenizer.convert_tokens_to_ids(["He", "She"])
    model = LLM(
        str(source.path), runner="pooling", dtype="float32", enforce_eager=True, disable_log_stats=True, max_model_len=512
    )
    params = PoolingParams(use_activation=False)

    def score(texts: Sequence[str]) -> Scores:
        lines = [tokenizer(f'{tokenizer.mask_token} said: "{text}"')["input_ids"] for text in texts]
        prompts = [TokensPrompt(prompt_token_ids=ids) for ids in lines]
        outputs = model.encode(prompts, pooling_params=params, pooling_task="token_classify", use_tqdm=False)
        scores: Scores = []
        for ids, output in zip(lines, outputs, strict=True):
            log_probs = torch.log_softmax(output.outputs.data[ids.index(tokenizer.mask_token_id)].float(), dim=-1)
            scores.append(float(log_probs[he] - log_probs[she]))
        return scores

    return score


def engine(source: Any, name: str, dtype: str, meter: Meter | None = None) -> Way:
    """One of this program's engines, by the way that a run takes."""
    from reference_loop import requests

    from evaluator_serving.answers import assemble
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.opening import open_engine
    from evaluator_serving.rows import chunks, merge

    encoder = encoder_for(source)
    first = merge([encoder.encode(request) for request in requests(["I am here."], masked=True)]).rows
    opened = open_engine(name, source, EngineOptions(device="cpu", dtype=dtype), first)
    if meter is not None:
        meter.watch(opened)

    def score(texts: Sequence[str]) -> Scores:
        encoded = [encoder.encode(request) for request in requests(texts, masked=True)]
        found = {
            answer.request: sum(answer.logprobs[0]) - sum(answer.logprobs[1])
            for chunk in chunks(encoded, tokens=1 << 16)
            for answer in assemble(chunk, opened.score(chunk.merged.rows))
        }
        return [found[item.request] for item in encoded]

    return score


class Meter:
    """Counts the onnx engine's floating-point operations and the seconds that its two sessions run."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self.reset()

    def reset(self) -> None:
        """Forget what was counted."""
        self.encoder_flop = self.head_flop = self.encoder_seconds = self.head_seconds = 0.0

    def watch(self, opened: Any) -> None:
        """Put counters around an engine's runner."""
        runner = opened._runner
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
            self.head_flop += 2 * len(states) * self._config.vocab_size * self._config.hidden_size
            return values

        runner.submit, runner._head.log_probs = counted_submit, counted_log_probs

    def _encoder_flop(self, batch: int, length: int, masks: int) -> float:
        """What the pruned graph computes, padding included: matrix products only."""
        width, inner, layers = (
            self._config.hidden_size,
            self._config.intermediate_size,
            self._config.num_hidden_layers,
        )
        tokens = batch * length
        whole = 2 * tokens * (4 * width**2 + 2 * width * inner) + 4 * tokens * length * width
        last = 2 * tokens * 2 * width**2 + 2 * masks * (2 * width**2 + 2 * width * inner) + 4 * masks * length * width
        return (layers - 1) * whole + last + 2 * masks * width**2


def _tokenizer(source: Any) -> Any:
    from evaluator_serving.models.tokenizer import load_tokenizer

    return load_tokenizer(source)


def open_way(way: str, source: Any, meter: Meter | None) -> Way:
    """Load one of WAYS."""
    if way == "published":
        from reference_loop import published_masked

        return published_masked(source)
    if way in ("batched", "pipeline", "vllm"):
        return {"batched": batched, "pipeline": pipeline, "vllm": vllm}[way](source)
    name, _, dtype = way.partition("-")
    return engine(source, name, dtype or "float32", meter)


# --- children -----------------------------------------------------------------------------------------------------


def child(job: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a process of its own."""
    if job["way"] == "peak":
        return {"gflop_s": matrix_peak()}
    if job["way"] == "rows":
        return engine_alone(job)
    from evaluator_serving.models.config import quiet
    from evaluator_serving.models.resolving import resolve

    quiet()
    source = resolve(job["folder"])
    meter = Meter(source.config) if job["way"].startswith("onnx") else None
    score = open_way(job["way"], source, meter)
    texts = job["texts"]
    score(texts[:: max(1, len(texts) // 8)])  # warm up
    if meter:
        meter.reset()
    began = time.perf_counter()
    scores = score(texts)
    result: dict[str, Any] = {"seconds": time.perf_counter() - began, "scores": scores, "peak_mib": peak_mib()}
    if meter:
        result["encoder_gflop_s"] = meter.encoder_flop / meter.encoder_seconds / 1e9
        result["all_gflop_s"] = (meter.encoder_flop + meter.head_flop) / result["seconds"] / 1e9
        result["seconds_in"] = {"encoder": meter.encoder_seconds, "head": meter.head_seconds}
    return result


def matrix_peak() -> float:
    """GFLOP/s of a large float32 matrix product, the best of several."""
    import torch

    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - began)
    return 2 * 4096**3 / min(times) / 1e9


def engine_alone(job: dict[str, Any]) -> dict[str, Any]:
    """Peak memory of the onnx engine in a process that never loads torch or a tokenizer: rows come as token ids."""
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.source import ModelSource
    from evaluator_serving.onnx.engine import OnnxEngine
    from evaluator_serving.rows import Row

    before = peak_mib()
    config = SimpleNamespace(**json.loads((Path(job["folder"]) / "config.json").read_text()))
    source = ModelSource(job["spec"], Path(job["folder"]), job["revision"], frozenset({"masked"}), config, 512)
    rows = [Row("masked", tuple(ids), tuple(map(tuple, lookups))) for ids, lookups in job["rows"]]
    opened = OnnxEngine(source, EngineOptions(device="cpu", dtype=job["dtype"]), rows)
    opened.score(rows)
    assert "torch" not in sys.modules
    weights = (opened._folder / "weights.bin").stat().st_size / 2**20
    return {"peak_mib": peak_mib(), "before_mib": before, "weights_mib": weights}


def peak_mib() -> float:
    """This process's largest resident size so far."""
    from evaluator_serving.memory import peak_memory

    return peak_memory() / (1 << 20)


def ask(job: dict[str, Any], threads: int, cache: str) -> dict[str, Any]:
    """Run `child` in a new process; a failure is an answer too."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "EVALUATOR_CACHE": cache,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(command, input=json.dumps(job), env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# --- one case -----------------------------------------------------------------------------------------------------


def measure(case: str, texts: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Every way on one model shape, `repeats` times over."""
    from reference_loop import make_shape

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        make_shape(case, folder, texts)
        cache = str(Path(temporary) / "cache")
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in (*arguments.ways, "peak")}
        rows = export_and_encode(folder, texts, cache, [w for w in arguments.ways if w.startswith("onnx")])
        alone = {
            dtype: ask({**rows, "way": "rows", "folder": str(folder), "dtype": dtype}, arguments.threads, cache)
            for dtype in rows.pop("dtypes")
        }
        for repeat in range(arguments.repeats):
            for way in found:
                job = {"way": way, "folder": str(folder), "texts": texts}
                found[way].append(ask(job, arguments.threads, cache))
                print(f"{case} {repeat} {way}: {summary(found[way][-1])}", file=sys.stderr, flush=True)
    return {"case": case, "aim": AIMS[case], **digest(found, alone, len(texts))}


def export_and_encode(folder: Path, texts: list[str], cache: str, ways: Sequence[str]) -> dict[str, Any]:
    """Fill the export cache and turn the sentences into rows, so that neither is in any child's time or memory."""
    from reference_loop import requests

    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.models.resolving import resolve
    from evaluator_serving.onnx.export_cache import cached_export
    from evaluator_serving.rows import merge

    os.environ["EVALUATOR_CACHE"] = cache
    source = resolve(str(folder))
    dtypes = [way.partition("-")[2] or "float32" for way in ways]
    for dtype in dtypes:
        cached_export(source, dtype, "masked")
    encoder = encoder_for(source)
    rows = merge([encoder.encode(request) for request in requests(texts, masked=True)]).rows
    return {
        "spec": source.spec,
        "revision": source.revision,
        "rows": [(row.ids, row.lookups) for row in rows],
        "dtypes": dtypes,
    }


def summary(result: dict[str, Any]) -> str:
    """One measurement in a few words, for the log."""
    if "failed" in result:
        return f"failed: {result['failed']}"
    return f"{result['seconds']:.2f} s" if "seconds" in result else f"{result['gflop_s']:.0f} GFLOP/s"


def digest(found: dict[str, list[dict[str, Any]]], alone: dict[str, Any], count: int) -> dict[str, Any]:
    """Medians, ratios to the published procedure, largest differences from its scores, shares of the peak."""
    peaks = [result["gflop_s"] for result in found.pop("peak")]
    reference = [r for r in found.get("published", []) if "seconds" in r]
    ways: dict[str, Any] = {}
    for way, results in found.items():
        good = [r for r in results if "seconds" in r]
        if not good:
            ways[way] = {"failed": results[0]["failed"]}
            continue
        ways[way] = {
            "ms_a_sentence": round(1e3 * statistics.median(r["seconds"] for r in good) / count, 2),
            "ms_fastest_slowest": [round(1e3 * f(r["seconds"] for r in good) / count, 2) for f in (min, max)],
            "peak_mib": round(max(r["peak_mib"] for r in good)),
        }
        if reference:
            # Paired within a repetition, where the machine was equally busy.
            pairs = zip(reference, results, strict=True) if len(reference) == len(results) else []
            ratios = [a["seconds"] / b["seconds"] for a, b in pairs if "seconds" in b]
            ways[way]["ratio"] = round(statistics.median(ratios), 2) if ratios else None
            differences = [abs(a - b) for a, b in zip(good[0]["scores"], reference[0]["scores"], strict=True)]
            ways[way]["max_difference"] = max(differences)
        if "encoder_gflop_s" in good[0]:
            for name in ("encoder_gflop_s", "all_gflop_s"):
                shares = [r[name] / peak for r, peak in zip(results, peaks, strict=True) if name in r]
                ways[way][name] = round(statistics.median(r[name] for r in good), 1)
                ways[way][name.replace("gflop_s", "share_of_peak")] = round(statistics.median(shares), 3)
            ways[way]["seconds_in"] = good[0]["seconds_in"]
    return {"peak_gflop_s": [round(p, 1) for p in peaks], "ways": ways, "engine_alone": alone}


def table(results: list[dict[str, Any]]) -> str:
    """The digest as text."""
    lines = []
    for result in results:
        lines.append(f"{result['case']} (aim: onnx {result['aim']:g}×; matrix peak {result['peak_gflop_s']} GFLOP/s)")
        lines.append(f"  {'way':13}{'ms/sentence':>12}{'fastest':>9}{'slowest':>9}{'ratio':>8}{'peak MiB':>10}{'max |Δ|':>10}")
        for way, r in result["ways"].items():
            if "failed" in r:
                lines.append(f"  {way:13} did not run: {r['failed']}")
                continue
            fastest, slowest = r["ms_fastest_slowest"]
            lines.append(
                f"  {way:13}{r['ms_a_sentence']:>12.1f}{fastest:>9.1f}{slowest:>9.1f}{r.get('ratio') or 0:>7.1f}×"
                f"{r['peak_mib']:>10}{r.get('max_difference', 0):>10.1e}"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(AIMS), default=list(AIMS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, help="folder of public data sets (default: EVALUATOR_DATA)")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results") / "mlm_throughput.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(json.load(sys.stdin))))
        return
    if arguments.data:
        os.environ["EVALUATOR_DATA"] = str(arguments.data)
    from reference_loop import sentences

    texts = sentences(arguments.rows)
    results = [measure(case, texts, arguments) for case in arguments.cases]
    machine = {"cpu": platform.processor() or platform.machine(), "threads": arguments.threads, "sentences": len(texts)}
    versions = {name: version(name) for name in ("torch", "transformers", "onnxruntime")}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine, "versions": versions, "results": results}
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
