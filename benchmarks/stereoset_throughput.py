"""English StereoSet on SmolLM2: this program against the published procedure, in one process, alternating.

    python benchmarks/stereoset_throughput.py --data DATA [--model FOLDER] [--sample 200] [--json FILE]

The published procedure scores one sequence at a time, with a softmax over the vocabulary at every position. This program's time
covers tokenizing to stored numbers, for all six generative cases. Both score the same sample of examples in alternating blocks;
this program then also scores the whole data set.
"""

import platform
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from output import benchmark_parser, write_record

from evaluator.datasets.stereoset import LABELS
from evaluator.demo import demo_model
from evaluator.store.answers import answers_frame
from evaluator.tasks.stereoset import StereoSetTask
from evaluator.vocabulary import DataSource, MeasureOptions, Samples
from evaluator_serving.answers import assemble
from evaluator_serving.chunks import chunks, merge
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.resolving import resolve_here
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Encoded
from evaluator_serving.transformers_engine.engine import TransformersEngine

CHUNK = 4096


class Published:
    """One sequence at a time with a full softmax, as the released code does it."""

    def __init__(self, model: Any, source: ModelSource) -> None:
        self.model = model
        self.text = encoder_for(source).text
        with torch.inference_mode():
            self.first = model(torch.tensor([[self.text.start_text_id]])).logits.softmax(-1)[0, 0]

    @torch.inference_mode()
    def probabilities(self, text: str) -> list[float]:
        ids = torch.tensor([self.text.tokens(text).ids])
        whole = self.model(ids, attention_mask=torch.ones_like(ids)).logits.softmax(-1)[0]
        found = [self.first[ids[0, 0]].item()]
        return found + [whole[at - 1, ids[0, at]].item() for at in range(1, ids.shape[1])]

    def score(self, samples: Samples) -> dict[tuple[str, str], float]:
        """Example and label → the candidate's score."""
        scores = {}
        for row in samples.frame.iter_rows(named=True):
            for label, sentence in zip(LABELS, row["sentences"], strict=True):
                if row["template"] == "intrasentence":
                    values = self.probabilities(sentence)
                else:
                    context = row["context"] if row["context"][-1] in ".!?" else row["context"] + "."
                    values = self.probabilities(f"{context} {sentence}")[len(self.text.tokens(context).ids) :]
                scores[row["example"], label] = float(2 ** np.mean(np.log2(values)))
        return scores


class Ours:
    """Render, encode, merge, batch, score."""

    def __init__(self, task: StereoSetTask, source: ModelSource, samples: Samples, protocol: str) -> None:
        self.task, self.protocol = task, protocol
        self.encoder = encoder_for(source)
        self.engine = TransformersEngine(source, EngineOptions(), merge(self.encode(samples)[1]).rows)

    def encode(self, samples: Samples) -> tuple[pl.DataFrame, list[Encoded]]:
        rendered = self.task.render(samples, frozenset({"causal"}), self.protocol)  # type: ignore[arg-type]
        return rendered.table, [self.encoder.encode(request) for request in rendered.requests.values()]

    def score(self, samples: Samples) -> pl.DataFrame:
        table, encoded = self.encode(samples)
        answers = [a for c in chunks(encoded, tokens=CHUNK) for a in assemble(c, self.engine.score(c.rows))]
        return self.task.score(table, answers_frame(answers), self.protocol)  # type: ignore[arg-type]


def differing(published: dict[tuple[str, str], float], ours: pl.DataFrame) -> float:
    """Largest difference of log scores."""
    columns = ("x_stereotype", "x_anti", "x_unrelated")
    pairs = [
        (published[row["example"], label], row[column])
        for row in ours.iter_rows(named=True)
        for label, column in zip(LABELS, columns, strict=True)
    ]
    return max(abs(float(np.log(a) - np.log(b))) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock and CPU time; on a busy machine the CPU's tells more."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def over(self, other: "Seconds") -> str:
        return f"{self.wall / other.wall:.2f}x ({self.cpu / other.cpu:.2f}x in CPU time)"

    def __str__(self) -> str:
        return f"{self.wall:.2f} s (CPU {self.cpu:.2f})"


def timed(call: Any, *args: Any) -> tuple[Seconds, Any]:
    begun, cpu = time.perf_counter(), time.process_time()
    result = call(*args)
    return Seconds(time.perf_counter() - begun, time.process_time() - cpu), result


def main() -> None:
    parser = benchmark_parser(__doc__, __file__, data=True, model=True, threads=True)
    parser.add_argument("--sample", type=int, default=200, help="examples for the side-by-side part")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--no-whole", action="store_true", help="leave out this program's pass over the whole set")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = StereoSetTask("en")
    samples = task.load(DataSource(options.data))
    source = resolve_here(options.model or str(demo_model()))
    # Both sides ask the same here, so that their numbers can be compared; the default protocol costs the same.
    ours = Ours(task, source, samples, "published")
    published = Published(ours.engine._forwards["causal"].model, source)
    chosen = replace(samples, frame=samples.frame.sample(options.sample, seed=0))
    blocks = [replace(chosen, frame=chosen.frame[i :: options.blocks]) for i in range(options.blocks)]
    published.score(replace(chosen, frame=chosen.frame[:2]))
    ours.score(replace(chosen, frame=chosen.frame[:2]))
    slow = fast = Seconds()
    largest = 0.0
    for i, block in enumerate(blocks):
        sides = [(ours.score, "ours"), (published.score, "published")]
        results = {name: timed(call, block) for call, name in (sides if i % 2 else sides[::-1])}
        (one, loop_scores), (other, our_scores) = results["published"], results["ours"]
        slow, fast = slow + one, fast + other
        largest = max(largest, differing(loop_scores, our_scores))
        print(f"block {i + 1}: published {one}, this program {other}, {one.over(other)}", flush=True)
    result: dict[str, Any] = {
        "model": options.model or "demo model",
        "threads": options.threads,
        "machine": platform.processor() or platform.machine(),
        "examples": options.sample,
        "published": asdict(slow),
        "this_program": asdict(fast),
        "speedup_wall": slow.wall / fast.wall,
        "speedup_cpu": slow.cpu / fast.cpu,
        "largest_log_difference": largest,
    }
    print(f"{options.sample} examples: published {slow}, this program {fast}: {slow.over(fast)}")
    print(f"largest difference of a log score: {largest:.1e}")
    if not options.no_whole:
        whole, scores = timed(ours.score, samples)
        scores = scores.with_columns(model=pl.lit("model"), task=pl.lit(task.name))
        measured, tidy = timed(task.measure, scores, MeasureOptions())
        share = samples.frame.height / options.sample
        expected = Seconds(slow.wall * share, slow.cpu * share)
        result |= {"whole": asdict(whole), "measures": asdict(measured), "published_whole_expected": asdict(expected)}
        print(f"whole set, {samples.frame.height} examples, six cases: {whole}; measures {measured}")
        print(f"the published procedure at its rate above: {expected}: {expected.over(whole)}")
        overall = tidy.filter(template="overall", group="all").select("measure", "value")
        print("  ".join(f"{name} {value:.2f}" for name, value in overall.iter_rows()))
    write_record(options.json, result)


if __name__ == "__main__":
    main()
