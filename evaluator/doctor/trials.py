"""Trials of engines and Ray, each in a separate process with a time limit, so that a crash becomes a finding."""

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
"""Time limit of one trial; most of it is importing libraries."""
NEEDED = "transformers"
"""The engine that every run needs for verification."""


def engines(seconds: float = SECONDS) -> Iterator[Finding]:
    """One finding per known engine; installed engines are tried."""
    try:
        from evaluator_serving.registry import known_engines

        known = list(known_engines())
    except ImportError as error:  # for example numpy: then nothing works
        yield Finding("engine", "", "broken", f"engines can't be listed: {error}", "install the packages missing above")
        return
    for one in known:
        if one.engine is None or one.problem:
            needed = one.name == NEEDED
            why, _, remedy = one.problem.rpartition(": ")
            yield Finding("engine", one.name, "broken" if needed else "note", why or one.problem, remedy)
        elif one.engine.devices == ("server",):
            remedy = "run with --engine openai --extra url=… when a server is running"
            yield Finding("engine", one.name, "note", "not tried: it needs a running server", remedy)
        elif not one.engine.heads & {"masked", "causal"}:
            yield Finding("engine", one.name, "note", "not tried: it scores neither masked nor causal requests")
        else:
            yield engine_finding(one.name, run_trial("engine", one.name, seconds))


def engine_finding(name: str, answer: Mapping[str, Any]) -> Finding:
    """The finding for a trial's answer."""
    if "error" in answer:
        remedy = "reinstall it, or choose another engine" if name != NEEDED else "reinstall torch and transformers"
        return Finding("engine", name, "broken", f"doesn't work: {answer['error']}", remedy)
    result = f"{' and '.join(answer['heads'])} on {answer['device']} within {answer['worst']:.0e} of float64"
    if not answer["right"]:
        return Finding("engine", name, "broken", f"gives wrong numbers: {result}", "use another engine, and report this")
    return Finding("engine", name, "ok", f"{result}, {answer['seconds']:.0f} s including start-up")


def ray(address: str | None, seconds: float = SECONDS) -> Iterator[Finding]:
    """The finding for Ray on this machine, or for the cluster at an address; nothing if Ray is neither installed nor needed."""
    if importlib.util.find_spec("ray") is None:
        if address:
            remedy = 'pip install "stereotype-evaluator[ray]"'
            yield Finding("ray", "", "broken", f"the cluster is {address}, but Ray is not installed", remedy)
        return
    yield ray_finding(address, run_trial("ray", address or "local", seconds))


def ray_finding(address: str | None, answer: Mapping[str, Any]) -> Finding:
    """The finding for a trial's answer."""
    where = f"cluster at {address}" if address else "local cluster"
    if "error" in answer:
        versions = "ersion" in answer["error"]
        remedy = "use the same versions of Ray and Python everywhere" if versions else "start a cluster, or correct the address"
        return Finding("ray", "", "broken", f"{where}: {answer['error']}", remedy if address else "reinstall Ray")
    local, remote = answer["here"], answer["there"]
    text = f"{where} works: {answer['nodes']} nodes, {answer['CPU']:g} CPUs, {answer['GPU']:g} GPUs"
    differing = sorted(name for name in local | remote if local.get(name) != remote.get(name))
    if differing:
        pairs = ", ".join(
            f"{name} {local.get(name) or 'none'} here and {remote.get(name) or 'none'} there" for name in differing
        )
        return Finding("ray", "", "warning", f"{text}; {pairs}", "install the same versions: numbers may depend on them")
    return Finding("ray", "", "ok", f"{text}, same versions as here")


def run_trial(what: str, argument: str, seconds: float) -> dict[str, Any]:
    """Run a trial and return its answer, or `error` with the reason why it gave none."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "EVALUATOR_CACHE": scratch, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", "evaluator.doctor.trial_process", what, argument]
        with open(os.path.join(scratch, "log"), "w+b") as log:
            child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
            try:
                output, _ = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return {"error": f"not finished within {seconds:.0f} s"}
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            with contextlib.suppress(ValueError, IndexError):
                answer: dict[str, Any] = json.loads(output.splitlines()[-1])
                return answer
            log.seek(0)
            last = (log.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            return {"error": f"its process ended with exit code {child.returncode}: {last[:300]}"}
