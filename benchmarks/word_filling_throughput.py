"""CrowS-Pairs' cs with a model of BERT-base's shape (random weights): this program against the papers' loop.

cs needs a forward pass for each token that the two sentences of a pair share, in both sentences. The loop masks one token at a
time, in batches of one, and computes every position's logits, as the released code of the word-filling paper does. This program
merges inputs that occur more than once and batches the rest; logits are computed where a token is masked only. The loop is run
on a sample of the pairs (every k-th), this program on the same sample and on all of them; scores on the sample are compared.

CrowS-Pairs hardly repeats itself; quadruples do, so for two data sets with control groups forward passes are counted as well.

    python benchmarks/word_filling_throughput.py --data DIR [--engine transformers|onnx] [--json FILE]
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from evaluator.datasets.crows import read_pairs
from evaluator.tasks import task
from evaluator.tasks.base import DataSource, Samples
from evaluator_serving.answers import assemble
from evaluator_serving.encoding import Encoder, encoder_for
from evaluator_serving.engine import Engine, EngineOptions, open_engine
from evaluator_serving.models import ModelSource, resolve
from evaluator_serving.requests import SharedTokens
from evaluator_serving.rows import Chunk, Encoded, chunks

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
        for answer in assemble(chunk, engine.score(chunk.merged.rows)):
            first, second = (sum(logprobs) for logprobs in answer.logprobs)
            scores[answer.request] = first - second
        print(f"\r{label}: chunk {i + 1} of {len(cut)}, {time.perf_counter() - begun:.0f} s", end="", flush=True)
    print()
    return scores, time.perf_counter() - begun


def counts(encoded: Sequence[Encoded], cut: Sequence[Chunk]) -> dict[str, int]:
    """Forward passes and their tokens, before and after merging equal inputs."""
    asked = [row for item in encoded for row in item.rows]
    done = [row for chunk in cut for row in chunk.merged.rows]
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


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("EVALUATOR_DATA"), help="folder of the public data sets")
    parser.add_argument("--engine", default="transformers", choices=["transformers", "onnx"])
    parser.add_argument("--sample", type=int, default=24, help="pairs that the loop is run on (default 24)")
    parser.add_argument("--repeats", type=int, default=3, help="runs on the sample, of which the fastest counts (default 3)")
    parser.add_argument("--sample-only", action="store_true", help="leave out the run over all pairs")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "word_filling_throughput.json")
    options = parser.parse_args()
    if not options.data:
        parser.error("give --data or set EVALUATOR_DATA")
    frame = read_pairs(Path(options.data) / "crows_pairs" / "crows_pairs_anonymized.csv").frame
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), [*frame["s0"], *frame["s2"]])
        source = resolve(folder)
        encoder = encoder_for(source)
        begun = time.perf_counter()
        unique = dict.fromkeys(SharedTokens(first, second) for first, second in frame.select("s0", "s2").iter_rows())
        encoded = [encoder.encode(request) for request in unique]
        cut = chunks(encoded, tokens=CHUNK_TOKENS)
        encoding = time.perf_counter() - begun
        sample = encoded[:: len(encoded) // options.sample][: options.sample]
        sample_cut = chunks(sample, tokens=CHUNK_TOKENS)
        engine = open_engine(options.engine, source, EngineOptions(device="cpu"), cut[0].merged.rows)
        by_the_program(engine, sample_cut[:1], "warm-up")
        loop_s, ours_s = [], []
        for _ in range(options.repeats):  # by turns, so that a busy neighbour slows both
            expected, seconds, _forwards = one_at_a_time(source, sample)
            loop_s.append(seconds)
            scores, seconds = by_the_program(engine, sample_cut, "sample")
            ours_s.append(seconds)
        found = [scores[item.request] for item in sample]
        row = {
            "engine": options.engine,
            "threads": torch.get_num_threads(),
            "machine": platform.processor() or platform.machine(),
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "sample": counts(sample, sample_cut),
            "sample_loop_s": loop_s,
            "sample_program_s": ours_s,
            "speedup": min(loop_s) / min(ours_s),
            "largest_difference": max(abs(a - b) for a, b in zip(expected, found, strict=True)),
            "all": counts(encoded, cut),
            "encoding_s": encoding,
            "stereoset-genderswap": task_counts("stereoset-genderswap", Path(options.data), encoder, 251),
            "stereoset-race-control": task_counts("stereoset-race-control", Path(options.data), encoder, 1000),
        }
        if not options.sample_only:
            _, row["all_program_s"] = by_the_program(engine, cut, "all pairs")
            row["all_pairs_per_s"] = len(encoded) / row["all_program_s"]
            loop_per_forward = min(loop_s) / row["sample"]["forwards_before"]
            row["all_loop_s_extrapolated"] = loop_per_forward * row["all"]["forwards_before"]
        engine.close()
    for key, value in row.items():
        print(f"{key:24} {value}")
    options.json.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
