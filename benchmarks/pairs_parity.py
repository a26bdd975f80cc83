"""English CrowS-Pairs with a generative model: the task `pairs` against lm-evaluation-harness's crows_pairs_english.

    EVALUATOR_DATA=DATA python benchmarks/pairs_parity.py [--pairs 1508] [--model SPEC] [--json FILE]

Both score the same pairs with the same weights, in float32 on the CPU. Compared are the harness's `pct_stereotype` (the share
of metric `sum`), `likelihood_diff` (the mean of |d|), and each pair's difference. Needs `pip install lm-eval`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from output import benchmark_parser, write_record

from evaluator.bench.measure import versions
from evaluator.demo import demo_model
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, MeasureOptions
from evaluator_serving.models.resolving import resolve_here


def ours(model: str, pairs: int, folder: Path) -> tuple[pl.DataFrame, dict[str, float], list[float]]:
    """The pairs that were asked, the two numbers, and each pair's d."""
    it = task("pairs")
    frame = it.load_limited(DataSource(), pairs).frame
    spec = RunSpec((ModelSpec(model, "transformers", label="m"),), (it,), folder, limit=pairs)
    scores = scores_of(execute(spec).run, it.name)
    rows = it.measure(scores, MeasureOptions(resamples=1)).filter(template="sum", group="all")
    value = dict(rows.select("measure", "value").iter_rows())
    numbers = {"pct_stereotype": value["share"], "likelihood_diff": value["mean_abs"]}
    return frame.sort("sample"), numbers, scores.filter(template="sum").sort("sample")["score"].to_list()


def harness(model: str, frame: pl.DataFrame) -> tuple[dict[str, float], list[float]]:
    """The same of the harness: its likelihoods of whole sentences, and its own formulas."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks.crows_pairs.utils import process_results

    backend = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=1)
    texts = [text for pair in frame.select("more", "less").iter_rows() for text in pair]
    asked = [Instance("loglikelihood", {}, ("", text), index) for index, text in enumerate(texts)]
    found = backend.loglikelihood(asked, disable_tqdm=True)
    both = list(zip(found[::2], found[1::2], strict=True))
    results = [process_results({}, pair) for pair in both]
    numbers = {key: sum(float(each[key]) for each in results) / len(results) for key in ("pct_stereotype", "likelihood_diff")}
    return numbers, [float(more[0]) - float(less[0]) for more, less in both]


def main() -> None:
    """Compare, print, write JSON."""
    parser = benchmark_parser(__doc__, __file__, model=True)
    parser.add_argument("--pairs", type=int, default=1508)
    arguments = parser.parse_args()
    model = str(resolve_here(arguments.model or str(demo_model())).path)
    with tempfile.TemporaryDirectory() as folder:
        frame, mine, differences = ours(model, arguments.pairs, Path(folder) / "run")
    theirs, expected = harness(model, frame)
    report: dict[str, Any] = {
        "pairs": frame.height,
        "ours": mine,
        "harness": theirs,
        "max_difference_of_d": max(abs(a - b) for a, b in zip(differences, expected, strict=True)),
        "versions": versions(),
    }
    write_record(arguments.json, report)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
