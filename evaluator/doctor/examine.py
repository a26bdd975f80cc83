"""The whole examination, in the order in which things depend on each other."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from evaluator.doctor import machine, places, tries
from evaluator.doctor.finding import Finding
from evaluator.doctor.packages import SAME
from evaluator.doctor.packages import findings as packages


def examine(*, data: Path | None = None, ray: str | None = None, quick: bool = False) -> Iterator[Finding]:
    """All findings, as they are made. `quick` starts no process: engines and Ray are not tried. `ray`: a cluster's address."""
    yield from packages()
    yield from machine.findings()
    yield from places.findings(data)
    if not quick:
        yield from tries.engines()
        yield from tries.ray(ray or os.environ.get("RAY_ADDRESS"))


def unmet(found: Collection[Finding], needs: Collection[str]) -> Iterator[Finding]:
    """What is asked for by name (an engine, an extra, an area such as `gpu` or `data`) and doesn't work."""
    for need in needs:
        named = [one for one in found if {need, SAME.get(need, need)} & {one.name, one.area}]
        if not any(one.works for one in named) or any(one.state == "broken" for one in named):
            said = next((one.text for one in named), "nothing of this name was looked at")
            yield Finding("need", need, "broken", said, next((one.remedy for one in named if one.remedy), ""))
