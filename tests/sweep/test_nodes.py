"""Weights on machines that share no folder: Ray nodes on loopback, each in a mount namespace of its own."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from evaluator_serving.weights.cache import HOME
from tests.e2e.conftest import sentences, write_samples
from tests.hub_server import HubServer
from tests.tiny_models import tiny_model

NAMES = ("a", "b", "c", "d", "e")
WEIGHTS = "model.safetensors"
RAY = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # what Ray calls a cluster on loopback
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
TOKEN = "hf_made_up_and_secret"

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra: ray)"),
    pytest.mark.skipif(
        os.geteuid() != 0
        or shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
        reason="needs root to mount",
    ),
]


SPREAD = """
import sys
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Strategy
from evaluator.run.worker import Load
from evaluator.sweep.replica import Replica
from evaluator_serving.engine import EngineOptions
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.models.resolving import resolve
ray.init(address=sys.argv[1], log_to_driver=False)
group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
ray.get(group.ready())
place = Strategy(group, placement_group_bundle_index=0)
replica = ray.remote(Replica).options(num_cpus=1, scheduling_strategy=place).remote(HubAccess.of_here())
load = Load("transformers", resolve(sys.argv[2]), EngineOptions(nodes=2), (), None, False)
ray.get(replica.fetch.remote(load))
"""
"""A replica over two machines, which only fetches."""


@dataclass
class Machines:
    """Ray nodes with their own HF_HOME (a tmpfs each, at one path) and their own view of the folder `local`."""

    home: Path
    local: Path
    temporary: Path
    port: int
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.2:{self.port}"

    def start(self, name: str, *, has_local: bool) -> None:
        """Start a node, the first one as the cluster's head; it calls itself `name` to the hub."""
        number = len(self.started) + 2  # Ray puts the machine's own address for 127.0.0.1
        role = (
            ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.temporary}"]
            if number == 2
            else [f"--address={self.address}"]
        )
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *role, f"--node-ip-address=127.0.0.{number}"]
        ray += ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--block"]
        hide = [] if has_local else [f"mount -t tmpfs none {self.local}"]
        script = " && ".join([f"mount -t tmpfs none {self.home}", *hide, 'exec "$@"'])
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "RAY_"))}
        own |= {"HF_HOME": str(self.home), "HF_HUB_USER_AGENT_ORIGIN": name, **RAY}
        command = ["unshare", "-m", "sh", "-c", script, "sh", *ray]
        path = self.temporary / f"{name}.log"
        with path.open("wb") as log:
            process = self.started[name] = subprocess.Popen(command, env=own, stdout=log, stderr=log)
        while "Ray runtime started" not in path.read_text():
            assert process.poll() is None, path.read_text()
            time.sleep(0.1)

    def sees(self, name: str) -> Path:
        """A node's hub cache as it sees it, from outside its namespace."""
        return Path(f"/proc/{self.started[name].pid}/root{self.home}") / "hub"

    def weights(self, name: str) -> set[str]:
        """Models whose weights are on a node."""
        return {file.parents[2].name.rpartition("--")[2] for file in self.sees(name).glob(f"*/snapshots/*/{WEIGHTS}")}

    def stop(self) -> None:
        for process in reversed(self.started.values()):
            process.terminate()
        for process in self.started.values():
            process.wait(timeout=60)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    folders = [tmp_path / name for name in ("home", "local")]
    for folder in folders:
        folder.mkdir()
    temporary = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: there are sockets in it
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    made = Machines(*folders, temporary, port)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(temporary)


def test_each_node_fetches_what_it_scores_once_and_within_its_budget(tmp_path: Path, machines: Machines) -> None:
    models = {f"tiny/{name}": tiny_model("gpt2", tmp_path / "models" / name, seed=seed) for seed, name in enumerate(NAMES)}
    local = tiny_model("gpt2", machines.local / "model", seed=9)
    size = (models["tiny/a"] / WEIGHTS).stat().st_size
    spare = tiny_model("gpt2", tmp_path / "models" / "f", seed=8)
    samples = write_samples(tmp_path / "own.csv", sentences(300))
    entries = "".join(f'[[models]]\nmodel = "{model}"\n' for model in [*models, local])
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text(
        f'tasks = ["gest"]\nsamples = "{samples}"\nweights_cache = "{3 * size + 10}B"\n'
        f'[defaults]\nengine = "transformers"\n{entries}'
    )
    with HubServer({**models, "tiny/f": spare}) as hub:
        hub.token = TOKEN
        hub.drops[WEIGHTS] = 1
        machines.start("north", has_local=False)
        machines.start("south", has_local=False)
        own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        own |= {"HF_HOME": str(tmp_path / "drivers"), **RAY, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
        own |= {"HF_HUB_USER_AGENT_ORIGIN": "driver", "EVALUATOR_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(tmp_path / "run")]
        command += ["--ray", machines.address, "--worker-memory", "1.5"]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False)
        assert (tmp_path / "run" / "run.json").is_file(), done.stderr[-3000:]
        run = Run.open(tmp_path / "run")
        (task,) = run.tasks
        # One model is on the driver's machine alone: that is its failure, and the node is named.
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1, done.stderr[-3000:]
        assert "model" in last
        assert f"has no {local}: copy it there" in last
        assert "node 127.0.0." in last
        assert set(scores_of(run, task)["model"]) == set(models)
        # The driver fetched what planning needs, the nodes the weights that they score: each once.
        weights = {f"{model}/{WEIGHTS}" for model in models}
        assert not weights & hub.fetched("driver").keys()
        assert {f"{model}/config.json" for model in models} <= hub.fetched("driver").keys()
        starts = {model: run.record["models"][model]["starts"] for model in models}
        assert all(start["seconds"]["fetch"] >= 0 for model in models for start in starts[model])
        by_node = {node: hub.fetched(node) for node in machines.started}
        sent = {name: sum(counts[name] for counts in by_node.values()) for name in weights}
        broken = 1
        assert weights <= {name for counts in by_node.values() for name in counts}
        for node, counts in by_node.items():
            again = sum(times - 1 for name, times in counts.items() if name in weights)
            broken -= again
            kept = machines.weights(node)
            assert len(kept) <= 3, "the budget"
            assert kept <= {name.split("/")[1] for name in counts}
            assert (machines.sees(node) / HOME / "ledger.json").is_file()
        assert broken == 0, f"nothing is fetched twice but what the connection broke off: {sent}"
        # A replica over both has its weights on both.
        spread = subprocess.run([sys.executable, "-c", SPREAD, machines.address, "tiny/f"], env=own, timeout=400, check=False)
        assert spread.returncode == 0
        assert "f" in machines.weights("north") & machines.weights("south")
    kept = [file for folder in (tmp_path / "run", machines.temporary) for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in kept if TOKEN.encode() in file.read_bytes()], "the token is written nowhere"
