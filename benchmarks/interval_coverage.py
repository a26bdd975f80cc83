"""Coverage of 95% intervals and error rates of the paired test, by simulation at n = 200.

    python benchmarks/interval_coverage.py [--sets N] [--json FILE]

Scores come from known distributions; intervals and tests from the functions that reports use. Counted is the share of data
sets in which the interval contains the true value, the test rejects, or Holm's correction accepts a false difference. Takes two
minutes on one core. Exit code 1 if a share differs from its target by more than two standard errors.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from output import benchmark_parser, write_record

from evaluator.measures import gest
from evaluator.measures.bootstrap import Array, Bootstrap, Stratum, means, with_counts
from evaluator.measures.estimate import SHIFTED
from evaluator.measures.intervals import BOOTSTRAPS, agresti_coull, wilson
from evaluator.measures.paired import compare, detectable, holm, pair, sign_test
from evaluator.measures.sampled import Label, Output, Sampled, Units
from evaluator.measures.validity import pearson, spearman
from evaluator.tasks import task
from evaluator.vocabulary import Interval, MeasureOptions

N = 200
"""Samples of every data set."""
RESAMPLES = 1000
PERMUTATIONS = 1000
FAMILY = 16
"""Tests of a family, as many as GEST has stereotypes."""
COVERAGE = (0.93, 0.97)
SIZE = (0.04, 0.06)
POWER = (0.76, 0.84)
METHODS: tuple[Interval, ...] = ("percentile", "bca", "published")

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "skewed": lambda random, shape: random.exponential(size=shape) - 1,
    "heavy-tailed": lambda random, shape: random.standard_t(5, size=shape) / math.sqrt(5 / 3),
}
"""Of mean 0 and variance 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """A share of data sets, with what is wanted of it and its own standard error."""

    what: str
    method: str
    sets: int
    share: float
    error: float
    wanted: tuple[float, float]

    @property
    def met(self) -> bool:
        """Whether the share is what is wanted, but for the noise of the simulation."""
        return self.wanted[0] - 2 * self.error <= self.share <= self.wanted[1] + 2 * self.error

    @classmethod
    def of(cls, what: str, method: str, hits: Array, wanted: tuple[float, float]) -> "Result":
        """From a mark for each data set."""
        share = float(np.mean(hits))
        return cls(what, method, len(hits), share, math.sqrt(max(share * (1 - share), 1e-4) / len(hits)), wanted)


def batches(sets: int) -> Iterator[tuple[int, int]]:
    """(seed, data sets) of batches that share their draws: enough batches that the draws' own luck evens out."""
    size = max(1, sets // 20)
    for seed, start in enumerate(range(0, sets, size)):
        yield seed, min(size, sets - start)


def held(low: Array, high: Array, truth: float) -> Array:
    """Whether the intervals hold the truth."""
    return ((low <= truth) & (truth <= high)).astype(float)


def mean_intervals(sets: int) -> Iterator[Result]:
    """q is exp of such a mean: its interval holds the truth where the mean's does."""
    for name, draw in DISTRIBUTIONS.items():
        for method in METHODS:
            hits = []
            for seed, count in batches(sets):
                values = draw(np.random.default_rng([1, seed]), (N, count))
                bootstrap = Bootstrap(method, RESAMPLES, seed)
                found = bootstrap.estimate([Stratum("s", with_counts(values))], lambda sums: means(sums)[..., 0, :])
                hits.append(held(found.low, found.high, 0.0))
            yield Result.of(f"mean of {name} scores (q)", BOOTSTRAPS[method], np.concatenate(hits), COVERAGE)


def gest_scores(random: np.random.Generator, count: int) -> pl.DataFrame:
    """N samples over 16 stereotypes; every template is a data set of its own; all q are 1 and so is every g_s."""
    sample, template = np.divmod(np.arange(N * count), count)
    return pl.DataFrame(
        {
            "model": "m",
            "task": "gest",
            "language": "en",
            "template": template.astype(str),
            "sample": sample,
            "group": (1 + sample % 16).astype(str),
            "score": random.normal(size=N * count),
        }
    )


def g_s(sampled: Sampled) -> list[int]:
    """The places of the templates' g_s among the outputs."""
    return [i for i, label in enumerate(sampled.labels) if label.measure == "g_s" and label.template != "all"]


def g_s_intervals(sets: int) -> Iterator[Result]:
    """12 or 13 samples a stereotype: resamples of so few vary less than samples do."""
    for method in METHODS:
        hits = []
        for seed, count in batches(sets):
            (sampled,) = gest.sampled(gest_scores(np.random.default_rng([2, seed]), count), "ratio")
            places = g_s(sampled)
            strata = [Stratum(units.stratum, units.values) for units in sampled.strata]
            statistic = sampled.statistic
            found = Bootstrap(method, RESAMPLES, seed).estimate(strata, lambda sums, f=statistic, p=places: f(sums)[..., p])
            hits.append(held(found.low, found.high, 1.0))
        yield Result.of(f"g_s over 16 stereotypes ({N} samples in all)", BOOTSTRAPS[method], np.concatenate(hits), COVERAGE)


def share_intervals(sets: int) -> Iterator[Result]:
    """Exact: every possible count, weighted by its probability."""
    for share in (0.5, 0.2, 0.05):
        weights = np.array([math.comb(N, k) * share**k * (1 - share) ** (N - k) for k in range(N + 1)])
        for name, interval in (("Wilson", wilson), ("Agresti-Coull", agresti_coull)):
            bounds = [interval(k, N) for k in range(N + 1)]
            inside = np.array([bound.low <= share <= bound.high for bound in bounds])
            yield Result(f"share of {share:.0%}", name, N + 1, float(weights @ inside), 0.0, COVERAGE)


def correlation_intervals(sets: int) -> Iterator[Result]:
    """Of bivariate normal values with r = 0.5: Fisher's z over models, the bootstrap over samples."""
    truth = 0.5
    spearman_truth = 6 / math.pi * math.asin(truth / 2)
    random = np.random.default_rng(3)
    hits: dict[str, list[float]] = {"Pearson": [], "Spearman": []}
    for _ in range(sets):
        x = random.normal(size=N)
        y = truth * x + math.sqrt(1 - truth**2) * random.normal(size=N)
        for name, correlate, wanted in (("Pearson", pearson, truth), ("Spearman", spearman, spearman_truth)):
            found = correlate(x.tolist(), y.tolist())
            hits[name].append(float((found.low or 0) <= wanted <= (found.high or 0)))
    for name, marks in hits.items():
        yield Result.of(f"{name}'s correlation", "Fisher's z", np.array(marks), COVERAGE)
    for method in METHODS:
        marks = []
        for seed, count in batches(sets):
            draw = np.random.default_rng([4, seed])
            x = draw.normal(size=(N, count))
            y = truth * x + math.sqrt(1 - truth**2) * draw.normal(size=(N, count))
            addends = np.concatenate([np.ones((N, count)), x, y, x * x, y * y, x * y], axis=1)
            found = Bootstrap(method, RESAMPLES, seed).estimate([Stratum("s", addends)], _pearson)
            marks.append(held(found.low, found.high, truth))
        yield Result.of("Pearson's correlation", BOOTSTRAPS[method], np.concatenate(marks), COVERAGE)


def _pearson(sums: Array) -> Array:
    n, x, y, xx, yy, xy = np.split(sums[..., 0, :], 6, axis=-1)
    return (xy - x * y / n) / np.sqrt((xx - x * x / n) * (yy - y * y / n))


def icat_intervals(sets: int) -> Iterator[Result]:
    """ICAT's truth is the value to be expected with so many examples, which is what its interval is of."""
    random = np.random.default_rng(5)
    sets = min(sets, 600)
    found = [_icat(random, seed) for seed in range(sets)]
    expected = float(np.mean([value for value, _, _ in found]))
    hits = [float(low <= expected <= high) for _, low, high in found]
    yield Result.of("ICAT at SS 55", BOOTSTRAPS["percentile"] + SHIFTED, np.array(hits), COVERAGE)


def _icat(random: np.random.Generator, seed: int) -> tuple[float, float, float]:
    scores = pl.DataFrame(
        {
            "model": "m",
            "task": "stereoset-en",
            "language": "en",
            "template": "intrasentence",
            "sample": range(N),
            "group": "gender",
            "target": "t",
            "x_stereotype": np.where(random.uniform(size=N) < 0.55, 3.0, 1.0),
            "x_anti": 2.0,
            "x_unrelated": np.where(random.uniform(size=N) < 0.8, 0.0, 4.0),
        }
    )
    rows = task("stereoset-en").measure(scores, MeasureOptions(resamples=RESAMPLES, seed=seed))
    row = rows.filter(pl.col("measure") == "ICAT", pl.col("group") == "all").row(0, named=True)
    return row["value"], row["low"], row["high"]


def _side(values: Array) -> Sampled:
    """Every column is a data set of its own; the outputs are the columns' means."""
    outputs = tuple(Output(Label(str(column), "mean"), len(values)) for column in range(values.shape[1]))
    units = (Units("s", tuple(range(len(values))), with_counts(values)),)
    return Sampled(outputs, units, lambda sums: means(sums)[..., 0, :])


def paired(sets: int) -> Iterator[Result]:
    """Two models whose scores correlate: the difference's interval, the test where nothing differs, and its power."""
    step = detectable(np.array([math.sqrt(2 * 0.25 / N)]))[0]  # of differences with the variance 2 · (1 − 0.75)
    for name, draw in DISTRIBUTIONS.items():
        inside, rejected, found_at_detectable, printed = [], [], [], []
        for seed, count in batches(sets):
            random = np.random.default_rng([6, seed])
            common = math.sqrt(0.75) * draw(random, (N, count))
            one, other = (common + 0.5 * draw(random, (N, count)) for _ in range(2))
            for shift, marks in ((0.0, rejected), (step, found_at_detectable)):
                both = pair(_side(one), _side(other + shift))
                assert both is not None
                (result,) = compare([both], Bootstrap("percentile", RESAMPLES, seed), PERMUTATIONS, seed)
                marks.append((result.p <= 0.05).astype(float))
                if not shift:
                    inside.append(held(result.low, result.high, 0.0))
                    printed.append(result.detectable_high)
        yield Result.of(f"paired difference, {name}", BOOTSTRAPS["percentile"], np.concatenate(inside), COVERAGE)
        yield Result.of(f"nothing differs, {name}", "paired test rejects", np.concatenate(rejected), SIZE)
        yield Result.of(
            f"the smallest difference is there, {name}", "paired test rejects", np.concatenate(found_at_detectable), POWER
        )
        near = np.abs(np.concatenate(printed) / step - 1) < 0.25
        yield Result.of(
            f"the smallest difference is printed, {name}", "within a quarter of it", near.astype(float), (0.95, 1.0)
        )


def shifted_g_s(sets: int) -> Iterator[Result]:
    """All q of one model are e^2 times the other's, both g_s are 1: only g_s is equal."""
    inside, rejected = [], []
    for seed, count in batches(sets):
        random = np.random.default_rng([7, seed])
        scores = gest_scores(random, count)
        moved = scores.with_columns(pl.col("score") + 2 + pl.Series(random.normal(size=scores.height)) / 2)
        ((one,), (other,)) = (gest.sampled(each, "ratio") for each in (scores, moved))
        both = pair(one, other, lambda label: label.measure == "g_s" and label.template != "all")
        assert both is not None
        (result,) = compare([both], Bootstrap("percentile", RESAMPLES, seed), PERMUTATIONS, seed)
        inside.append(held(result.low, result.high, 0.0))
        rejected.append((result.p <= 0.05).astype(float))
    yield Result.of(f"difference of g_s ({N} samples in all)", BOOTSTRAPS["percentile"], np.concatenate(inside), COVERAGE)
    yield Result.of("g_s is equal, all q differ", "paired test rejects", np.concatenate(rejected), SIZE)


def families(sets: int) -> Iterator[Result]:
    """16 true hypotheses, independent ones and correlated ones: how often any is rejected."""
    for name, weight in (("independent", 0.0), ("correlated (0.5)", 0.5)):
        any_rejected = []
        for seed, count in batches(sets):
            random = np.random.default_rng([8, seed])
            own = random.normal(size=(N, count, FAMILY))
            shared = random.normal(size=(N, count, 1))
            d = (math.sqrt(weight) * shared + math.sqrt(1 - weight) * own).reshape(N, -1)
            p = sign_test([("s", d - d.mean(axis=0))], d.mean(axis=0), PERMUTATIONS, seed).reshape(count, FAMILY)
            any_rejected.append(np.array([(holm(row) <= 0.05).any() for row in p], dtype=float))
        what = f"nothing differs in {FAMILY} {name} tests"
        yield Result.of(what, "Holm rejects any", np.concatenate(any_rejected), (0.0, 0.05))


PARTS = (
    mean_intervals,
    g_s_intervals,
    share_intervals,
    correlation_intervals,
    icat_intervals,
    paired,
    shifted_g_s,
    families,
)


def simulate(sets: int) -> Iterator[Result]:
    """All results, over so many data sets each."""
    for part in PARTS:
        yield from part(sets)


def main() -> int:
    """Print the table, write the JSON."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--sets", type=int, default=2000, help="data sets of each kind (default 2000)")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    results = []
    for result in simulate(arguments.sets):
        results.append(result)
        wanted = f"{result.wanted[0]:.0%} to {result.wanted[1]:.0%}"
        mark = "" if result.met else "  NOT MET"
        print(
            f"{result.share:7.2%} ± {result.error:.2%}  {result.method:60.60}  {result.what}  (wanted {wanted}){mark}",
            flush=True,
        )
    rows = [{**asdict(result), "met": result.met} for result in results]
    found = {
        "n": N,
        "resamples": RESAMPLES,
        "permutations": PERMUTATIONS,
        "seconds": time.perf_counter() - begun,
        "results": rows,
    }
    write_record(arguments.json, found)
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
