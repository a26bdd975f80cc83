"""SkyPilot's task is executed: its two scripts on two machines, which are processes with real Ray on loopback."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from evaluator_serving.locks import held
from tests.deploy.conftest import DEPLOY, ROOT

TASK = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text(encoding="utf8"))
RAY = """#!/bin/bash
[ "$1" = stop ] && echo "ray stop" >> "$LOG"  # ends every Ray of the machine, SkyPilot's own, too
[ "$1" = start ] || exec {python} -m ray.scripts.scripts "$@"
exec {python} -m tests.sweep.patient_ray "$@" --node-ip-address="$ADDRESS" --num-cpus 1 --object-store-memory=80000000
"""
EVALUATOR = """#!/bin/bash
echo "evaluator $*" >> "$LOG"
[ "$1" = sweep ] && exit "$SWEEP_CODE"
exit 0
"""
UV = """#!/bin/bash
echo "uv $*" >> "$LOG"
"""
PYTHON = """#!/bin/bash
[ "$2" != pip ] || {{ echo "pip" >> "$LOG"; exit 0; }}
exec {python} "$@"
"""


def machine(home: Path, rank: int, log: Path, **more: str) -> dict[str, str]:
    """The environment of a machine of the job's."""
    for path, text in {
        home / "evaluator" / "bin" / "ray": RAY,
        home / "evaluator" / "bin" / "evaluator": EVALUATOR,
        home / "evaluator" / "bin" / "python": PYTHON,
        home / ".local" / "bin" / "uv": UV,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable))
        path.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SKYPILOT_"))}
    nodes = {"SKYPILOT_NODE_IPS": "127.0.0.2\n127.0.0.3", "SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": "2"}
    return {
        **kept,
        **nodes,
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "LOG": str(log),
        "ADDRESS": f"127.0.0.{rank + 2}",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "SWEEP": "SWEEP.toml",
        "OUT": "s3://b/night",
        **more,
    }


@contextlib.contextmanager
def on_machine(script: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A script with all that it starts, which is ended at the end."""
    with subprocess.Popen(
        ["bash", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as job:
        try:
            yield job
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGTERM)


def test_setup_takes_a_python_that_the_program_can_use(tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run(["bash", "-c", TASK["setup"]], env=machine(tmp_path, 0, log), check=True)
    home = tmp_path / "evaluator"
    assert log.read_text().splitlines() == [f"uv venv --allow-existing --seed --python 3.12 {home}", "pip"]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.alone
def test_the_heads_exit_code_is_the_jobs_and_nothing_else_is_stopped(tmp_path: Path) -> None:
    """The second machine joins, and ends with 0 when the head's Ray has gone: SkyPilot takes another code for a failed job."""
    log, script = tmp_path / "log", TASK["run"].replace("/marks", str(tmp_path / "marks"))
    sockets = Path(tempfile.gettempdir()) / f"sky-{os.getpid()}"  # Ray's sockets have long names: their folder's must be short
    script = script.replace("/tmp/evaluator-ray", str(sockets))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, sockets, ignore_errors=True)
        # Its ports are always the same.
        stack.enter_context(held(Path(tempfile.gettempdir()) / "evaluator-skypilot.lock", wait=True))
        how = {"SWEEP_CODE": "7", "RAY_gcs_rpc_server_reconnect_timeout_s": "20"}
        machines = [machine(tmp_path / str(rank), rank, log, **how) for rank in (0, 1)]
        jobs = [stack.enter_context(on_machine(script, environment)) for environment in machines]
        said = [job.communicate(timeout=400)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [7, 0], "\n".join(said)
    sweep = "evaluator sweep SWEEP.toml --out s3://b/night --ray 127.0.0.2:6399 --log-format json"
    assert log.read_text().splitlines() == ["evaluator data fetch gest", sweep]
