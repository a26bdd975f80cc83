"""The transformers engine on the device: correctness in float32 and bfloat16, at all batch sizes, and on several GPUs."""

import time
from pathlib import Path

import numpy as np
import torch
from gpu.inputs import causal_rows, difference, generative, plain, tokens_a_second
from gpu.section import Part, Section, SkipError

from evaluator_serving.checks.verify import TOLERANCE
from evaluator_serving.engine import EngineOptions
from evaluator_serving.memory import Held
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Row

CHECKED = {True: 12, False: 48}
"""Rows that are compared, by whether shapes are small."""
TIMED = {True: 40, False: 4000}
BATCHES = {True: (64, 256), False: (1024, 4096, 16_384, 65_536)}


def run(section: Section, scratch: Path) -> None:
    """All parts."""
    source = generative(scratch, small=section.small)
    rows = causal_rows(source, TIMED[section.small])
    few = rows[: CHECKED[section.small]]
    expected = plain(source, few)
    for dtype in ("float32", "bfloat16"):
        with section.part(dtype) as part:
            held = Held()
            held.remember()
            begun = time.perf_counter()
            engine = open_engine("transformers", source, EngineOptions(dtype=dtype, device=section.device), few)
            part.measured(model=source.path.name, start_seconds=time.perf_counter() - begun)
            part.check(
                f"largest |Δ log P| from float64 over {expected.size}",
                difference(engine.score(few), expected),
                TOLERANCE[dtype],
            )
            part.measured(device=engine.details()["device"], tokens_a_second=tokens_a_second(engine, rows))
            engine.close()
            del engine
            part.holds("the memory is free again", held.is_back())
    with section.part("fused vocabulary head") as part:
        fused(section, part, source, few, rows)
    for tokens in BATCHES[section.small]:
        with section.part(f"batches of {tokens} tokens") as part:
            options = EngineOptions(device=section.device, batch_tokens=tokens)
            engine = open_engine("transformers", source, options, few)
            part.check("largest |Δ log P| from float64", difference(engine.score(few), expected), TOLERANCE["float32"])
            part.measured(tokens_a_second=tokens_a_second(engine, rows))
            engine.close()
    with section.part("spread over two GPUs") as part:
        spread(section, source, few, expected)


def fused(section: Section, part: Part, source: ModelSource, few: list[Row], rows: list[Row]) -> None:
    """The kernel in the place of logits and log-softmax is used, and gives their numbers; the rates of both."""
    for dtype in ("float32", "bfloat16"):
        engine = open_engine("transformers", source, EngineOptions(dtype=dtype, device=section.device), few)
        forward = next(iter(engine._forwards.values()))
        if section.device == "cuda":
            part.holds(f"{dtype}: the kernel computes the vocabulary", forward.fuses)
        with_kernel, fast = np.concatenate(engine.score(few)), tokens_a_second(engine, rows)
        forward.fuses = False
        part.check(
            f"{dtype}: largest |Δ log P| with and without it", difference(engine.score(few), with_kernel), TOLERANCE[dtype]
        )
        part.measured(**{f"{dtype}_tokens_a_second": fast, f"{dtype}_without_tokens_a_second": tokens_a_second(engine, rows)})
        engine.close()


def spread(section: Section, source: ModelSource, rows: list[Row], expected: np.ndarray) -> None:
    """The layers laid over two GPUs give the same numbers."""
    found = torch.cuda.device_count() if section.device == "cuda" else 0
    if found < 2:
        raise SkipError(f"needs two GPUs, there are {found}")
    part = section.parts["spread over two GPUs"]
    engine = open_engine("transformers", source, EngineOptions(device="cuda", spread=2), rows)
    used = [torch.cuda.memory_allocated(device) for device in range(2)]
    part.holds("both GPUs hold some of it", min(used) > 1 << 20)
    part.check("largest |Δ log P| from float64", difference(engine.score(rows), expected), TOLERANCE["float32"])
    engine.close()
