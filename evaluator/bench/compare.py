"""Compare two benches: the speed ratio of each backend, and whether it exceeds the noise. Pure functions."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evaluator_serving.errors import InputError

SURE = 2.0
"""Standard deviations beyond which a difference counts as more than noise."""
CONDITIONS = (
    ("hardware", "name"),
    ("hardware", "cores"),
    ("model", "spec"),
    ("work", "task"),
    ("work", "sentences"),
    ("work", "threads"),
)
"""Fields that must be equal for the ratio to measure the program alone."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One backend's speed in two benches.

    Attributes:
        before, after: sentences per second; ratio: after / before; noise: the ratio's relative standard deviation.
        beyond_noise: whether the ratio differs from 1 by more than SURE standard deviations.
    """

    backend: str
    before: float
    after: float
    ratio: float
    noise: float
    beyond_noise: bool

    def record(self) -> dict[str, Any]:
        """For JSON, in which the backend's key is `way`, as in the records."""
        values = asdict(self)
        return {"way": values.pop("backend"), **values}


def is_whole(record: Mapping[str, Any]) -> bool:
    """Whether a record has all fields that are compared, with the right types."""
    try:
        backends = [backend for backend in record["ways"] if "error" not in backend]
        numbers = all(
            backend["sentences_s"] > 0 and backend["noise"] >= 0 and isinstance(backend["way"], str) for backend in backends
        )
        versions = record["system"]["versions"]
        return numbers and isinstance(versions, dict) and all(name in record[part] for part, name in CONDITIONS)
    except (KeyError, TypeError):
        return False


def ratios(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Ratio]:
    """One ratio per backend that ran in both. Raises InputError if there is none."""
    earlier = {backend["way"]: backend for backend in before["ways"] if "error" not in backend}
    both = [
        (earlier[backend["way"]], backend) for backend in after["ways"] if "error" not in backend and backend["way"] in earlier
    ]
    if not both:
        raise InputError("no backend ran in both benchmarks: give the same --engine and --against to both")
    for old, new in both:
        ratio = new["sentences_s"] / old["sentences_s"]
        noise = (old["noise"] ** 2 + new["noise"] ** 2) ** 0.5
        yield Ratio(new["way"], old["sentences_s"], new["sentences_s"], ratio, noise, abs(ratio - 1) > SURE * noise)


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """One line for each condition and package version that differs."""
    for part, name in CONDITIONS:
        if before[part][name] != after[part][name]:
            yield f"{part} {name} differs: {before[part][name]} and {after[part][name]}: compare with care"
    old, new = (record["system"]["versions"] for record in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{name} version differs: {old.get(name, 'none')} and {new.get(name, 'none')}"
