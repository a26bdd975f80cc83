"""Engines and Ray, tried: each in a process of its own with a time limit, so that a crash is a finding."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from evaluator.doctor.finding import Finding

SECONDS = 300.0
"""For one engine: most of it is importing libraries."""
NEEDED = "transformers"
"""The engine without which nothing is scored or verified."""


def engines(seconds: float = SECONDS) -> Iterator[Finding]:
    """Every engine that has a name: tried where it is installed."""
    try:
        from evaluator_serving.registry import known_engines

        known = list(known_engines())
    except ImportError as error:  # numpy, say: then nothing works
        yield Finding("engine", "", "broken", f"engines can't be listed: {error}", "install what is missing above")
        return
    for one in known:
        if one.made is None or one.problem:
            needed = one.name == NEEDED
            why, _, remedy = one.problem.rpartition(": ")
            yield Finding("engine", one.name, "broken" if needed else "note", why or one.problem, remedy)
        elif one.made.devices == ("server",):
            remedy = "run with --engine openai --extra url=… once a server is up"
            yield Finding("engine", one.name, "note", "not tried: it asks a server that is running already", remedy)
        elif not one.made.heads & {"masked", "causal"}:
            yield Finding("engine", one.name, "note", "not tried: it answers neither masked nor causal requests")
        else:
            yield engine_finding(one.name, ask("engine", one.name, seconds))


def engine_finding(name: str, answer: Mapping[str, Any]) -> Finding:
    """What a trial's answer means."""
    if "error" in answer:
        remedy = "reinstall it, or choose another engine" if name != NEEDED else "reinstall torch and transformers"
        return Finding("engine", name, "broken", f"doesn't work: {answer['error']}", remedy)
    found = f"{' and '.join(answer['heads'])} on {answer['device']} within {answer['worst']:.0e} of float64"
    if not answer["right"]:
        return Finding("engine", name, "broken", f"gives wrong numbers: {found}", "use another engine, and report it")
    return Finding("engine", name, "ok", f"{found}, {answer['seconds']:.0f} s with its start")


def ray(address: str | None, seconds: float = SECONDS) -> Iterator[Finding]:
    """Ray here or, where an address is given, the cluster there; nothing where neither is asked for."""
    if importlib.util.find_spec("ray") is None:
        if address:
            yield Finding(
                "ray",
                "",
                "broken",
                f"RAY_ADDRESS is {address}, and Ray isn't installed",
                'pip install "stereotype-evaluator[ray]"',
            )
        return
    yield ray_finding(address, ask("ray", address or "local", seconds))


def ray_finding(address: str | None, answer: Mapping[str, Any]) -> Finding:
    """What a trial's answer means."""
    where = f"cluster at {address}" if address else "a cluster started here"
    if "error" in answer:
        remedy = (
            "the same versions of Ray and Python everywhere"
            if "ersion" in answer["error"]
            else "start one, or correct the address"
        )
        return Finding("ray", "", "broken", f"{where}: {answer['error']}", remedy if address else "reinstall Ray")
    here, there = answer["here"], answer["there"]
    text = f"{where} answers: {answer['nodes']} nodes, {answer['CPU']:g} CPUs, {answer['GPU']:g} GPUs"
    other = {name: (here.get(name), there.get(name)) for name in here | there if here.get(name) != there.get(name)}
    if other:
        told = ", ".join(f"{name} {one or 'none'} here and {two or 'none'} there" for name, (one, two) in other.items())
        return Finding("ray", "", "warning", f"{text}; {told}", "install the same versions: numbers may depend on them")
    return Finding("ray", "", "ok", f"{text}, the versions are the same")


def ask(what: str, argument: str, seconds: float) -> dict[str, Any]:
    """A trial's answer; `error` says why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "EVALUATOR_CACHE": scratch, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", "evaluator.doctor.trial", what, argument]
        with open(os.path.join(scratch, "log"), "w+b") as log:
            child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
            try:
                said, _ = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return {"error": f"not done within {seconds:.0f} s"}
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            with contextlib.suppress(ValueError, IndexError):
                answer: dict[str, Any] = json.loads(said.splitlines()[-1])
                return answer
            log.seek(0)
            last = (log.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1]
            return {"error": f"its process ended with {child.returncode}: {last[:300]}"}
