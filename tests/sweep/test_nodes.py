"""Weights on machines that share no folder: Ray nodes on loopback, each in a mount namespace of its own."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from evaluator_serving.weights.cache import HOME
from tests.e2e.conftest import sentences, write_samples
from tests.hub_server import Hold, HubServer
from tests.ports import free_port
from tests.tiny_models import tiny_model

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c", "d", "e")
WEIGHTS = "model.safetensors"
RAY = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # what Ray calls a cluster on loopback
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
}
HUB = {"HF_HUB_DOWNLOAD_TIMEOUT": "600", "HF_HUB_ETAG_TIMEOUT": "600"}
"""Whoever is kept waiting, by a test or by a busy machine, doesn't ask again: what is asked is counted."""
TOKEN = "hf_made_up_and_secret"

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
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
from evaluator.scoring.worker import Load
from evaluator.sweep.on_ray.worker import RayWorker
from evaluator_serving.engine import EngineOptions
from evaluator_serving.weights.access import HubAccess
from evaluator_serving.models.resolving import resolve
ray.init(address=sys.argv[1], log_to_driver=False)
group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
ray.get(group.ready())
place = Strategy(group, placement_group_bundle_index=0)
replica = ray.remote(RayWorker).options(num_cpus=1, scheduling_strategy=place).remote(HubAccess.of_here())
load = Load("transformers", resolve(sys.argv[2]), EngineOptions(nodes=2), (), None, False)
ray.get(replica.fetch.remote(load))
"""
"""A replica over two machines, which only fetches."""


@dataclass
class Machines:
    """Ray nodes with their own HF_HOME (a folder each, at one path); `local` is on some of them, `nowhere` on none."""

    home: Path
    local: Path
    nowhere: Path
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
        ray = [sys.executable, "-m", "tests.sweep.patient_ray", "start", *role, f"--node-ip-address=127.0.0.{number}"]
        ray += ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--block"]
        hidden = [self.nowhere] if has_local else [self.nowhere, self.local]
        self.own(name).mkdir(exist_ok=True)
        mounts = [f"mount --bind {self.own(name)} {self.home}", *(f"mount -t tmpfs none {folder}" for folder in hidden)]
        script = " && ".join([*mounts, 'exec "$@"'])
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "RAY_"))}
        own |= {"HF_HOME": str(self.home), "HF_HUB_USER_AGENT_ORIGIN": name, "PYTHONPATH": str(ROOT), **RAY, **HUB}
        command = ["unshare", "-m", "sh", "-c", script, "sh", *ray]
        path = self.temporary / f"{name}.log"
        with path.open("wb") as log:
            process = self.started[name] = subprocess.Popen(command, env=own, stdout=log, stderr=log)
        while "Ray runtime started" not in path.read_text():
            assert process.poll() is None, path.read_text()
            time.sleep(0.1)

    def own(self, name: str) -> Path:
        """What is a node's HF_HOME, from outside its namespace."""
        return self.home.with_name(f"home-{name}")

    def sees(self, name: str) -> Path:
        """A node's hub cache."""
        return self.own(name) / "hub"

    def weights(self, name: str) -> set[str]:
        """Models whose weights are on a node."""
        return {file.parents[2].name.rpartition("--")[2] for file in self.sees(name).glob(f"*/snapshots/*/{WEIGHTS}")}

    def kill(self, name: str) -> None:
        """Take a node's power away."""
        process = self.started[name]
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(timeout=300)

    def stop(self) -> None:
        for process in reversed(self.started.values()):
            process.terminate()
        for process in self.started.values():
            process.wait(timeout=300)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    folders = [tmp_path / name for name in ("home", "local", "nowhere")]
    for folder in folders:
        folder.mkdir()
    temporary = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: there are sockets in it
    home, local, nowhere = folders
    made = Machines(home, local, nowhere, temporary, free_port("127.0.0.2"))
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(temporary, ignore_errors=True)  # Ray's agents end a little later, and write until then


def environment(tmp_path: Path, hub: HubServer) -> dict[str, str]:
    """The driver's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own |= {"HF_HOME": str(tmp_path / "drivers"), **RAY, **HUB, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    return own | {"HF_HUB_USER_AGENT_ORIGIN": "driver", "EVALUATOR_CACHE": str(tmp_path / "cache")}


def test_each_node_fetches_what_it_scores_once_and_within_its_budget(tmp_path: Path, machines: Machines) -> None:
    models = {f"tiny/{name}": tiny_model("gpt2", tmp_path / "models" / name, seed=seed) for seed, name in enumerate(NAMES)}
    local = tiny_model("gpt2", machines.local / "here", seed=9)
    nowhere = tiny_model("gpt2", machines.nowhere / "gone", seed=10)
    size = (models["tiny/a"] / WEIGHTS).stat().st_size
    spare = tiny_model("gpt2", tmp_path / "models" / "f", seed=8)
    samples = write_samples(tmp_path / "own.csv", sentences(300))
    entries = "".join(f'[[models]]\nmodel = "{model}"\n' for model in [*models, local, nowhere])
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text(
        f'tasks = ["gest"]\nsamples = "{samples}"\nweights_cache = "{3 * size + 10}B"\n'
        f'[defaults]\nengine = "transformers"\n{entries}'
    )
    with HubServer({**models, "tiny/f": spare}) as hub:
        hub.token = TOKEN
        hub.drops[WEIGHTS] = 1
        machines.start("north", has_local=False)
        machines.start("south", has_local=True)
        own = environment(tmp_path, hub)
        command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(tmp_path / "run")]
        command += ["--ray", machines.address, "--worker-memory", "1.5"]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=500, check=False)
        assert (tmp_path / "run" / "run.json").is_file(), done.stderr[-3000:]
        run = Run.open(tmp_path / "run")
        (task,) = run.tasks
        # One model is on the driver's machine alone: that is its failure, and the nodes are named.
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1, done.stderr[-3000:]
        assert f"gone: no machine has {nowhere} as it is here (127.0.0.2, 127.0.0.3): copy it to one of them" in last
        # Another one is on one node too: it runs there.
        assert set(scores_of(run, task)["model"]) == {*models, "here"}
        assert {start["on"] for start in run.record["models"]["here"]["starts"]} == {"1 × CPU worker without gone"}
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
    machines.stop()  # whose files come and go while they run
    written = [file for folder in (tmp_path / "run", machines.temporary) for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in written if TOKEN.encode() in content(file)], "the token is written nowhere"


def content(file: Path) -> bytes:
    """A file's, nothing of one that has gone meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    return b""


AGAIN = """
import sys
from evaluator_serving.models.resolving import resolve, weights_here
for model in sys.argv[1:]:
    with weights_here(resolve(model)):
        pass
"""
"""A node that has been started again fetches what it was fetching."""


def test_a_node_dies_in_the_middle_of_a_download(tmp_path: Path, machines: Machines) -> None:
    models = {f"tiny/{name}": tiny_model("gpt2", tmp_path / "models" / name, seed=seed) for seed, name in enumerate("abc")}
    samples = write_samples(tmp_path / "own.csv", sentences(60))
    entries = "".join(f'[[models]]\nmodel = "{model}"\n' for model in models)
    sweep = tmp_path / "SWEEP.toml"
    sweep.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[defaults]\nengine = "transformers"\n{entries}')
    hold = Hold()
    with HubServer(models) as hub:
        hub.holds[WEIGHTS] = hold
        for node in ("north", "south", "west"):
            machines.start(node, has_local=False)
        own = environment(tmp_path, hub)
        command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(tmp_path / "run")]
        command += ["--ray", machines.address, "--worker-memory", "1.5"]
        driver = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 400
        while not (torn := list(machines.sees("west").glob("*/blobs/*.incomplete"))):
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        machines.kill("west")
        hold.go.set()
        _, said = driver.communicate(timeout=300)
        assert driver.returncode == 0, said[-3000:]
        run = Run.open(tmp_path / "run")
        scores = scores_of(run, run.tasks[0])
        assert sorted(scores["model"].unique()) == sorted(models)
        assert scores.height == 2 * 60 * len(models), "nothing is lost"
        assert scores["score"].is_not_null().all()
        assert run.failures().is_empty()
        # What the dead node holds is no model, and once the node is there again it becomes one.
        assert {file.parents[1].name.rpartition("--")[2] for file in torn}.isdisjoint(machines.weights("west"))
        again = own | {"HF_HOME": str(machines.own("west"))}
        subprocess.run([sys.executable, "-c", AGAIN, *models], env=again, check=True, timeout=200)
        for file in machines.sees("west").glob(f"*/snapshots/*/{WEIGHTS}"):
            name = file.parents[2].name.removeprefix("models--").replace("--", "/")
            assert file.read_bytes() == (models[name] / WEIGHTS).read_bytes()
        assert machines.weights("west") == {"a", "b", "c"}
        assert not list(machines.sees("west").glob("*/blobs/*.incomplete"))
