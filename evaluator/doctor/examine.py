"""All checks, in order of dependency."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from evaluator.doctor import environment, machine, trials
from evaluator.doctor.finding import Finding
from evaluator.doctor.packages import SAME
from evaluator.doctor.packages import findings as packages


def examine(
    *, data: Path | None = None, ray: str | None = None, quick: bool = False, needs: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield findings as they are made.

    `quick` starts no process, so engines and Ray are not tried. `ray`: cluster address. `needs`: what must work (see `unmet`).
    """
    findings = []
    for finding in _findings(data, ray, quick):
        findings.append(finding)
        yield finding
    yield from unmet(findings, needs)


def _findings(data: Path | None, ray: str | None, quick: bool) -> Iterator[Finding]:
    yield from packages()
    yield from machine.findings()
    yield from environment.findings(data)
    if not quick:
        yield from trials.engines()
        yield from trials.ray(ray or os.environ.get("RAY_ADDRESS"))


def unmet(findings: Collection[Finding], needs: Collection[str]) -> Iterator[Finding]:
    """A finding for each needed engine, extra or area (such as `gpu` or `data`) that does not work."""
    for need in needs:
        named = [one for one in findings if {need, SAME.get(need, need)} & {one.name, one.area}]
        if not any(one.works for one in named) or any(one.state == "broken" for one in named):
            text = next((one.text for one in named), "no check has this name")
            yield Finding("need", need, "broken", text, next((one.remedy for one in named if one.remedy), ""))
