"""The Slurm script is executed: stand-ins for Slurm's programs start what they are given as real processes on loopback."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from tests.e2e.conftest import sentences, write_samples
from tests.scoring.faulty import held

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm.sbatch"
SRUN = """#!{python}
import json, os, signal, subprocess, sys
options = []
rest = sys.argv[1:]
while rest and rest[0].startswith("--"):
    options.append(rest.pop(0))
given = dict(option.partition("=")[::2] for option in options)
with open(os.environ["STAND_IN_LOG"], "a") as log:
    log.write(json.dumps({{"srun": given, "command": rest}}) + "\\n")
first = 0 if "--nodelist" in given else 1
tasks = [subprocess.Popen(rest, env=os.environ | {{"SLURM_PROCID": str(first + n)}}) for n in range(int(given["--ntasks"]))]
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: [task.send_signal(number) for task in tasks])
sys.exit(max(abs(task.wait()) for task in tasks))
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && exec seq -f 'node%g' 1 "$SLURM_JOB_NUM_NODES"
echo "{{\\"scontrol\\": \\"$*\\"}}" >> "$STAND_IN_LOG"
"""
RAY = """#!/bin/bash
# A machine's own address: Ray finds it out by itself where each machine has one.
case "$*" in *--head*) set -- "$@" ;; *) set -- "$@" "--node-ip-address=127.0.0.$((SLURM_PROCID + 2))" ;; esac
exec {python} -m tests.sweep.patient_ray "$@" --object-store-memory=80000000
"""
STAND_INS = {
    "srun": SRUN,
    "scontrol": SCONTROL,
    "ray": RAY,
    "hostname": "#!/bin/bash\necho 127.0.0.2\n",
    "python3": '#!/bin/bash\nexec {python} "$@"\n',
    "evaluator": '#!/bin/bash\nexec {python} -m evaluator "$@"\n',
    "apptainer": '#!/bin/bash\nwhile [ "${{1##*.}}" != sif ]; do shift; done; shift; IN_IMAGE=yes exec "$@"\n',
}


@dataclass
class Slurm:
    """A place where the script can be submitted."""

    folder: Path
    job: str

    @property
    def log(self) -> list[dict[str, object]]:
        """What the stand-ins were asked."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def submit(self, script: Path, *arguments: str | Path, nodes: int, **more: str) -> subprocess.Popen[str]:
        """The script as Slurm's batch step runs it."""
        (self.folder / "log").write_text("")
        slurm = {"SLURM_JOB_ID": self.job, "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": f"node[1-{nodes}]"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
        environment |= {**slurm, "SLURM_CPUS_PER_TASK": "1", "STAND_IN_LOG": str(self.folder / "log")}
        environment |= {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_USAGE_STATS_ENABLED": "0", **more}
        environment |= {"RAY_memory_monitor_refresh_ms": "0"}
        command = ["bash", str(script), *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=self.folder)

    def left(self) -> list[str]:
        """Processes of this job that stay: Ray's agents look every few seconds whether their node is still there."""
        deadline = time.monotonic() + 60
        while (found := self._running()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _running(self) -> list[str]:
        mark = f"/tmp/ray-{self.job}"
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            with contextlib.suppress(psutil.NoSuchProcess):
                if mark in line and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(line[:200])
        return found


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    (tmp_path / "bin").mkdir()
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.write_text(text.format(python=sys.executable))
        path.chmod(0o755)
    job = str(os.getpid())
    yield Slurm(tmp_path, job)
    shutil.rmtree(f"/tmp/ray-{job}", ignore_errors=True)


def scored_by(out: Path) -> set[str]:
    """The replicas whose answers are stored so far."""
    return set(Run.open(out).timings()["worker"]) if (out / "run.json").exists() else set()


NO_RAY = {
    "ray": """#!/bin/bash
printf '{{"ray": "%s"}}\\n' "$*" >> "$STAND_IN_LOG"
exec sleep 60
""",
    "python3": """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    os.execv("{python}", ["python", *sys.argv[1:]])
with open(os.environ["STAND_IN_LOG"], "a") as log:
    log.write(json.dumps({{sys.argv[2].rpartition(".")[2]: sys.argv[3:], "HF_HOME": os.environ["HF_HOME"]}}) + "\\n")
sys.exit(int(os.environ["CODE"]) if sys.argv[2].endswith("attempt") else 0)
""",
    "hostname": '#!/bin/bash\n[ "$1" = --ip-address ] && echo 127.0.1.1 || echo "127.0.0.1 10.0.0.7 10.0.1.7"\n',
}
"""Stand-ins for what the script starts, for looking at what it is told."""


@pytest.mark.parametrize(("code", "out"), [(0, "a night/run"), (2, "run"), (1, "/tmp/a night/run")])
def test_a_job_with_relative_paths_and_spaces(code: int, out: str, slurm: Slurm) -> None:
    """Weights have a whole path, the head an address that others reach, and the sweep's exit code is the job's."""
    for name, text in NO_RAY.items():
        (slurm.folder / "bin" / name).write_text(text.format(python=sys.executable))
    job = slurm.submit(SCRIPT, "my sweep.toml", out, nodes=2, EVALUATOR_SIF="e.sif", CODE=str(code), HF_HOME="")
    said, _ = job.communicate(timeout=300)
    assert job.returncode == code, said
    home = str((slurm.folder / out).parent / "huggingface")
    (tried,) = (entry for entry in slurm.log if "attempt" in entry)
    words = tried["attempt"]
    assert isinstance(words, list)
    assert words[:6] == [f"{home}/refused", "evaluator", "sweep", "my sweep.toml", "--out", out]
    assert tried["HF_HOME"] == home
    assert words[7].startswith("10.0.0.7:")
    assert {f"{slurm.folder},{home}"} == {
        entry["command"][entry["command"].index("--bind") + 1]  # type: ignore[index, union-attr]
        for entry in slurm.log
        if "srun" in entry and entry["command"][0] == "apptainer"  # type: ignore[index]
    }
    assert not any("scontrol" in entry for entry in slurm.log)


@pytest.mark.slow
@pytest.mark.ray
def test_a_job_that_reaches_its_limit_goes_back_into_the_queue_and_goes_on(slurm: Slurm, tmp_path: Path) -> None:
    """Two nodes until the signal before the time limit; then the same job on one node, in an image."""
    from tests.tiny_models import tiny_model

    samples = write_samples(tmp_path / "own.csv", sentences(1000))
    model = tiny_model("gpt2", tmp_path / "gpt2")
    sweep, out, gate = tmp_path / "SWEEP.toml", tmp_path / "run", tmp_path / "gate"
    sweep.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[[models]]\nmodel = "{model}"\n{held(gate)}')
    job = slurm.submit(SCRIPT, sweep, out, nodes=2)
    deadline = time.monotonic() + 300
    while scored_by(out) != {"0", "1"}:  # both nodes: either may load long after the other on a busy machine
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    assert said.splitlines()[-1] == "evaluator: interrupted; the job goes back into the queue"
    assert slurm.log[-1] == {"scontrol": f"requeue {slurm.job}"}
    assert slurm.left() == []
    steps = [entry for entry in slurm.log if "srun" in entry]
    assert {entry["srun"]["--cpus-per-task"] for entry in steps} == {"1"}  # type: ignore[index]
    started = [entry["command"] for entry in steps if entry["command"][0] == "ray"]  # type: ignore[index]
    assert [("--head" in command) for command in started] == [True, False]
    run = Run.open(out)
    before = len(run.done("gpt2"))
    assert 0 < before < 2000

    gate.touch()
    job = slurm.submit(SCRIPT, sweep, out, nodes=1, EVALUATOR_SIF="evaluator.sif")
    said, _ = job.communicate(timeout=300)
    assert job.returncode == 0, said
    assert scores_of(run, run.tasks[0]).height == 2000
    assert not any("scontrol" in entry for entry in slurm.log)
    assert all(entry["command"][0] in ("apptainer", "bash") for entry in slurm.log)  # type: ignore[index]
    assert slurm.left() == []
