"""Two benches beside each other: how many times as fast, and whether that is more than the noise. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evaluator_serving.errors import InputError

SURE = 2.0
"""Standard deviations beyond which a difference isn't taken for noise."""
CONDITIONS = (
    ("hardware", "name"),
    ("hardware", "cores"),
    ("model", "spec"),
    ("work", "task"),
    ("work", "sentences"),
    ("work", "threads"),
)
"""What should be equal for a ratio to say something of the program."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A backend in two benches.

    Attributes:
        before, after: sentences a second; ratio: after over before; noise: the ratio's own standard deviation, as a share.
        beyond_noise: whether the ratio differs from 1 by more than SURE of these.
    """

    way: str
    before: float
    after: float
    ratio: float
    noise: float
    beyond_noise: bool

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def is_whole(record: Mapping[str, Any]) -> bool:
    """Whether a record has all that is compared, of the types that a bench writes."""
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
    """Of the backends that ran in both. Raises InputError where there is none."""
    known = {backend["way"]: backend for backend in before["ways"] if "error" not in backend}
    both = [(known[backend["way"]], backend) for backend in after["ways"] if "error" not in backend and backend["way"] in known]
    if not both:
        raise InputError("the two benches have no backend in common that ran in both: give --engine and --against alike")
    for old, new in both:
        ratio = new["sentences_s"] / old["sentences_s"]
        noise = (old["noise"] ** 2 + new["noise"] ** 2) ** 0.5
        yield Ratio(new["way"], old["sentences_s"], new["sentences_s"], ratio, noise, abs(ratio - 1) > SURE * noise)


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """A line on each condition that isn't the same, and on each version."""
    for part, name in CONDITIONS:
        if before[part][name] != after[part][name]:
            yield f"{part}: {name} {before[part][name]} and {after[part][name]}: compare with care"
    old, new = (record["system"]["versions"] for record in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{name} {old.get(name, 'none')} and {new.get(name, 'none')}"
