"""CrowS-Pairs' cs with random weights in BERT-base's shape: this program against the papers' loop.

    python benchmarks/word_filling_throughput.py --data DIR [--engines transformers onnx] [--json FILE]

cs needs one forward pass for each token shared by the two sentences, in both. The loop masks one token at a time with batch
size 1 and all logits, as the released code does. This program merges equal inputs, batches, and computes logits at masked
positions only. The loop runs on every k-th pair, this program on the same sample and on all pairs; scores are compared.
Forward passes are also counted for two data sets with control groups, whose inputs repeat.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from output import benchmark_parser, write_record
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from evaluator.bench.measure import versions
from evaluator.datasets.crows import read_pairs
from evaluator.tasks import task
from evaluator.vocabulary import DataSource, Samples
from evaluator_serving.answers import assemble
from evaluator_serving.chunks import Chunk, chunks
from evaluator_serving.encoding import Encoder, encoder_for
from evaluator_serving.engine import Engine, EngineOptions
from evaluator_serving.models.resolving import resolve_here
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.requests import SharedTokens
from evaluator_serving.rows import Encoded

CHUNK_TOKENS = 40_000


def make_model(folder: Path, texts: Sequence[str]) -> None:
    """BERT-base with random weights and a WordPiece tokenizer trained on the texts (vocabulary matrix 30,522 wide)."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=6000, special_tokens=special, show_progress=False))
    ends = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name[1:-1].lower()}_token": name for name in special}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig()).save_pretrained(folder)


def one_at_a_time(source: ModelSource, encoded: Sequence[Encoded]) -> tuple[list[float], float, int]:
    """cs of each pair by the loop: scores, seconds, forward passes."""
    model = BertForMaskedLM.from_pretrained(source.path).eval()
    scores, forwards = [], 0
    begun = time.perf_counter()
    with torch.inference_mode():
        for item in encoded:
            sides = []
            for candidate in item.candidates:
                total = 0.0
                for read in candidate.reads:
                    row = item.rows[read.row]
                    ((place, token),) = row.lookups
                    logits = model(torch.tensor([row.ids])).logits
                    total += float(torch.log_softmax(logits[0], dim=-1)[place, token])
                    forwards += 1
                sides.append(total)
            scores.append(sides[0] - sides[1])
    return scores, time.perf_counter() - begun, forwards


def by_the_program(engine: Engine, cut: Sequence[Chunk], label: str) -> tuple[dict[str, float], float]:
    """cs of each pair by request id, and seconds."""
    scores = {}
    begun = time.perf_counter()
    for i, chunk in enumerate(cut):
        for answer in assemble(chunk, engine.score(chunk.rows)):
            first, second = (sum(logprobs) for logprobs in answer.logprobs)
            scores[answer.request] = first - second
        print(f"\r{label}: chunk {i + 1} of {len(cut)}, {time.perf_counter() - begun:.0f} s", end="", flush=True)
    print()
    return scores, time.perf_counter() - begun


def counts(encoded: Sequence[Encoded], cut: Sequence[Chunk]) -> dict[str, int]:
    """Forward passes and their tokens, before and after merging equal inputs."""
    asked = [row for item in encoded for row in item.rows]
    done = [row for chunk in cut for row in chunk.rows]
    return {
        "requests": len(encoded),
        "forwards_before": len(asked),
        "forwards_after": len(done),
        "tokens_before": sum(row.length for row in asked),
        "tokens_after": sum(row.length for row in done),
    }


def task_counts(name: str, folder: Path, encoder: Encoder, samples: int) -> dict[str, int]:
    """`counts` of the first samples of a task, all its scores together; a request that samples share counts for each."""
    it = task(name)
    read = it.load(DataSource(folder))
    part = Samples(read.frame.head(samples), read.sha256)
    rendered = it.render(part, frozenset({"masked"}), "default")
    encoded = {key: encoder.encode(request) for key, request in rendered.requests.items()}
    cut = chunks(list(encoded.values()), tokens=CHUNK_TOKENS)
    asked = [encoded[key] for key in rendered.table["request"]]
    return {"samples": part.frame.height, **counts(asked, cut)}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = benchmark_parser(__doc__, __file__, data=True)
    parser.add_argument("--engines", nargs="+", default=["transformers", "onnx"], choices=["transformers", "onnx"])
    parser.add_argument("--sample", type=int, default=16, help="pairs that the loop is run on (default 16)")
    parser.add_argument("--repeats", type=int, default=3, help="runs on the sample, of which the fastest counts (default 3)")
    parser.add_argument("--sample-only", action="store_true", help="leave out the run over all pairs")
    options = parser.parse_args()
    if not options.data:
        parser.error("give --data or set EVALUATOR_DATA")
    return options


def compare(source: ModelSource, sample: Sequence[Encoded], engines: dict[str, Engine], repeats: int) -> dict[str, Any]:
    """Seconds of the loop and of each engine on the sample, by turns, so that a busy neighbour slows all of them."""
    cut = chunks(sample, tokens=CHUNK_TOKENS)
    for name, engine in engines.items():
        by_the_program(engine, cut[:1], f"{name}, warm-up")
    seconds: dict[str, list[float]] = {name: [] for name in ("loop", *engines)}
    difference = dict.fromkeys(engines, 0.0)
    for _ in range(repeats):
        expected, took, _forwards = one_at_a_time(source, sample)
        seconds["loop"].append(took)
        for name, engine in engines.items():
            scores, took = by_the_program(engine, cut, f"{name}, sample")
            seconds[name].append(took)
            off = [abs(value - scores[item.request]) for value, item in zip(expected, sample, strict=True)]
            difference[name] = max(difference[name], *off)
    best = {name: min(values) for name, values in seconds.items()}
    return {
        **counts(sample, cut),
        "seconds": seconds,
        "speedup": {name: best["loop"] / best[name] for name in engines},
        "largest_difference": difference,
    }


def main() -> None:
    """Print the table and write the figures."""
    options = parse()
    folder = Path(options.data)
    frame = read_pairs(folder / "crows_pairs" / "crows_pairs_anonymized.csv").frame
    with tempfile.TemporaryDirectory() as model:
        make_model(Path(model), [*frame["s0"], *frame["s2"]])
        source = resolve_here(model)
        encoder = encoder_for(source)
        begun = time.perf_counter()
        unique = dict.fromkeys(SharedTokens(first, second) for first, second in frame.select("s0", "s2").iter_rows())
        encoded = [encoder.encode(request) for request in unique]
        cut = chunks(encoded, tokens=CHUNK_TOKENS)
        encoding = time.perf_counter() - begun
        rows = cut[0].rows
        engines = {name: open_engine(name, source, EngineOptions(device="cpu"), rows) for name in options.engines}
        sample = encoded[:: len(encoded) // options.sample][: options.sample]
        result: dict[str, Any] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
            "versions": versions(),
            "crows-pairs": {"pairs": frame.height, **counts(encoded, cut), "encoding_s": encoding},
            "stereoset-genderswap": task_counts("stereoset-genderswap", folder, encoder, 251),
            "stereoset-race-control": task_counts("stereoset-race-control", folder, encoder, 1000),
            "sample": compare(source, sample, engines, options.repeats),
        }
        if not options.sample_only:
            speedup = result["sample"]["speedup"]
            fastest = max(speedup, key=speedup.__getitem__)
            _, seconds = by_the_program(engines[fastest], cut, f"{fastest}, all pairs")
            forward = min(result["sample"]["seconds"]["loop"]) / result["sample"]["forwards_before"]
            result["crows-pairs"] |= {
                "engine": fastest,
                "seconds": seconds,
                "pairs_per_s": frame.height / seconds,
                "loop_seconds_extrapolated": forward * result["crows-pairs"]["forwards_before"],
            }
        for engine in engines.values():
            engine.close()
    print(json.dumps(result, indent=1))
    write_record(options.json, result)


if __name__ == "__main__":
    main()
