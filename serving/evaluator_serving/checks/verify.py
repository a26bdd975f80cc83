"""Checking an engine at load time on a handful of the run's own rows.

Against the transformers engine in the same dtype where both fit into memory; otherwise against itself, one row at a time
against all rows at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluator_serving.checks.oracle_cache import Answer, OracleCache
from evaluator_serving.devices import has_cuda
from evaluator_serving.engine import BYTES, Engine, EngineOptions
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.memory import available_memory
from evaluator_serving.models.source import ModelSource
from evaluator_serving.registry import FALLBACK, engine_class
from evaluator_serving.rows import Row
from evaluator_serving.table import HEADS, Forwards

TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.6, "bf16x2": 1e-3, "int8": 3.0}
"""Largest |Δ log P| between two right engines of one dtype (natural log).

float32: exact engines differ by up to 4e-5 on SmolLM2 and 2e-4 on random-weight encoders, so 1e-3 is a real error. float16 and
bfloat16: single log-probabilities move by up to 0.46 when the order of operations changes (SmolLM2, bfloat16). int8 is an
approximation: only gross errors are refused, the drift is what the record is for.
"""
EXPECTED = {"int8": "float32", "bf16x2": "float32"}
"""The oracle's dtype for those dtypes that stand for another one; every other is compared with itself."""
ROWS = 12

ORACLE = FALLBACK
"""The engine that the others are checked against."""


@dataclass(frozen=True, slots=True)
class Verified:
    """How an engine was checked: the method, the largest |Δ log P| over `reads` log-probabilities, the tolerance."""

    method: str
    difference: float
    tolerance: float
    reads: int

    @property
    def by_oracle(self) -> bool:
        """Whether the oracle's numbers were among those that it was compared with: the dtype is then what it was said to be."""
        return self.method.startswith(ORACLE)

    def __str__(self) -> str:
        return (
            f"verified against {self.method}: max |Δ log P| {self.difference:.1e} over {self.reads} log-probabilities "
            f"(tolerance {self.tolerance:g})"
        )


def sample_rows(rows: Sequence[Row]) -> list[Row]:
    """A few rows of every head that cover short, middling and long ones."""
    chosen: list[Row] = []
    for head in sorted({row.head for row in rows}):
        members = sorted((row for row in rows if row.head == head), key=lambda row: (row.length, row.ids))
        chosen += [members[i] for i in _spread(len(members))]
    return list(dict.fromkeys(chosen))


def sample_passes(passes: Forwards) -> list[Row]:
    """As `sample_rows`, of a table's forward passes."""
    heads, chosen = passes.columns.heads[passes.first], list[int]()
    for head in sorted(set(heads.tolist()), key=HEADS.__getitem__):
        members = np.flatnonzero(heads == head)
        members = members[np.argsort(passes.length[members], kind="stable")]
        lengths = passes.length[members]
        for place in _spread(len(members)):
            first, end = np.searchsorted(lengths, lengths[place]), np.searchsorted(lengths, lengths[place], "right")
            keys = passes.columns.ids.take(passes.host[members[first:end]]).keys()  # of passes as long as this one
            chosen.append(int(members[first + sorted(range(len(keys)), key=keys.__getitem__)[place - first]]))
    return list(dict.fromkeys(passes.some(chosen)))


def _spread(count: int) -> list[int]:
    """Which of some sorted things are looked at."""
    step = max(1, (count - 1) // (ROWS - 1))
    return [*range(0, count, step)[: ROWS - 1], count - 1]


def verify_engine(engine: Engine, source: ModelSource, options: EngineOptions, rows: Sequence[Row]) -> Verified:
    """Compare `engine` with the oracle on some of `rows`. Raises InputError with both values beyond the tolerance.

    Rows that the oracle has no finite number for are left to the run, whose error names their samples. An engine that has a
    simpler way to compute the same (`Engine.fall_back`) goes over to it before it is given up.
    """
    few = sample_rows([row for row in rows if row.chat is None])  # what is said has no number to compare
    method, few, answers = _expected(engine, source, options, few)
    limit = TOLERANCE[options.dtype]
    few = [row for row, answer in zip(few, answers, strict=True) if answer is not None]
    expected = [answer for answer in answers if answer is not None]
    if not few:
        return Verified(method, 0.0, limit, 0)
    a, b = np.concatenate(engine.score(few)), np.concatenate(expected)
    if not _largest(a, b) <= limit and engine.fall_back():
        method += " (after the engine fell back to its plain computation)"
        a = np.concatenate(engine.score(few))
    difference = _largest(a, b)
    if not difference <= limit:
        worst = int(np.argmax(np.abs(a - b)))
        raise InputError(
            f"{source.spec}: this engine is wrong here: log P {a[worst]:.6f} instead of {b[worst]:.6f} by {method} "
            f"(|Δ| {difference:.1e} > {limit:g}); use --engine transformers, or --no-verify to continue regardless"
        )
    return Verified(method, difference, limit, int(a.size))


def _expected(
    engine: Engine, source: ModelSource, options: EngineOptions, few: list[Row]
) -> tuple[str, list[Row], list[Answer]]:
    """How an engine is checked: the method, the rows, and what they should give.

    The oracle isn't loaded where it is remembered what it said of these rows, or of others that can stand in for them; these
    themselves are then compared with each of them alone.
    """
    dtype = EXPECTED.get(options.dtype, options.dtype)
    memory = None
    if (
        engine.comparable
        and source.code is None
        and options.quantization is None
        and getattr(engine, "device_kind", None) == "cpu"
    ):
        memory = OracleCache.of(source, dtype)
        if all(row in memory.answers for row in few):
            return "transformers (cached)", few, [memory.answers[row] for row in few]
        # What is remembered may be longer than anything that this engine has room for.
        if like := [] if engine.sized else sample_rows(memory.like(few)):
            method = "transformers (cached from an earlier run's rows) and itself one row at a time"
            return method, [*like, *few], [*(memory.answers[row] for row in like), *_alone(engine, few)]
    device = _oracle_device(source, options, dtype) if engine.comparable else None
    if device is None:
        return "itself one row at a time", few, _alone(engine, few)
    answers = _ask_oracle(source, dtype, device, few)
    if memory is not None and device == "cpu":
        memory.add(few, answers)
    return "transformers", few, answers


def needs_weights(engine: str, source: ModelSource, options: EngineOptions, *, verify: bool) -> bool:
    """Whether loading `source` into the engine called `engine` reads weights: a server has its own, the oracle needs them."""
    made = engine_class(engine)
    return made.reads_weights or (verify and made.comparable and _oracle_device(source, options, options.dtype) is not None)


def is_checked(engine: str, dtype: str) -> bool:
    """Whether the numbers of the engine called `engine` are to be checked at all: what the oracle itself computes isn't."""
    return engine != ORACLE or dtype in EXPECTED


def _largest(a: np.ndarray, b: np.ndarray) -> float:
    """Largest |a - b|; NaN if any is NaN, 0 for empty arrays."""
    return float(np.abs(a - b).max(initial=0.0))


def _alone(engine: Engine, rows: list[Row]) -> list[Answer]:
    """Each row's numbers, None for one that can't be answered."""
    answers: list[Answer] = []
    for row in rows:
        try:
            answers.append(engine.score([row])[0])
        except EngineError as error:
            if error.row is None:
                raise
            answers.append(None)
    return answers


def _ask_oracle(source: ModelSource, dtype: str, device: str, rows: list[Row]) -> list[Answer]:
    oracle = engine_class(ORACLE)(source, EngineOptions(dtype=dtype, device=device), rows)
    try:
        return list(oracle.score(rows))
    except EngineError:
        return _alone(oracle, rows)
    finally:
        oracle.close()


def _oracle_device(source: ModelSource, options: EngineOptions, dtype: str) -> str | None:
    """Where a second copy of the weights fits into half of the free memory: beside the engine, else in main memory."""
    if options.quantization is not None:
        return None  # other numbers than the oracle's are what was asked for
    weights = source.parameters * BYTES[dtype]
    if weights == 0:
        return None
    if options.device != "cpu" and has_cuda() and weights < _free_on_device() / 2:
        return options.device
    return "cpu" if weights < available_memory() / 2 else None


def _free_on_device() -> int:
    import torch

    return int(torch.cuda.mem_get_info()[0])
