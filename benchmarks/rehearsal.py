"""The processes of deploy/kuberay on one machine: three Ray nodes, a submitted job, and the loss of a node.

    python benchmarks/rehearsal.py [--sentences 400] [--models 2] [--s3] [--json FILE]

A head node without work and two workers have separate raylets, resources and addresses (127.0.0.2 …), with Ray's token
authentication. The sweep is submitted by `ray job submit` with the manifest's entrypoint. Ray's exporter is scraped as by
Prometheus. When some answers are stored, one worker node is killed. With --s3 the run is on an S3 server (moto).

Raises AssertionError unless the job succeeds, the report equals that of an uninterrupted run in one process, every answer is
stored once, the metrics were exported, and no process is left.
"""

import contextlib
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from output import benchmark_parser, write_record
from prometheus_client.parser import text_string_to_metric_families

from evaluator.demo import demo_model
from evaluator.scoring.metrics import CHUNK_FAILURES, FAILURES, HOST_MEMORY, METRICS, PROGRESS, REPLICAS, REQUESTS, RESTARTS
from evaluator.store.run import Run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORKERS = 2
SPOKEN = "like to work sleep think talk cook read lead help with my friends family often never always today quietly"
STORED = """
import sys, evaluator
from evaluator.store.run import Run
print(Run.open(evaluator.open(sys.argv[1]).path).timings()["requests"].sum())
"""
"""How many answers a run's driver stored in all."""
START = [sys.executable, "-m", "ray.scripts.scripts"]
JOB = "night"
"""The submitted job's name."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no connection gets by chance until somebody does."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = random.randrange(20_000, 32_000)  # systems give those from 32,768 on to whoever asks for any
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found


def write_sweep(folder: Path, models: Sequence[Path], sentences: int, how: str) -> Path:
    """SWEEP.toml and its made-up sentences; `how`: the lines of each model's engine."""
    words = SPOKEN.split()
    lines = [f"I {words[i % 19]} {words[i // 19 % 19]} {words[i // 361 % 19]} {words[i * 7 % 19]}." for i in range(sentences)]
    rows = "".join(f"{line},{i % 16 + 1}\n" for i, line in enumerate(lines))
    (folder / "own.csv").write_text(f"sentence,stereotype\n{rows}")
    entries = "".join(f'[[models]]\nmodel = "{m}"\nname = "m{i}"\n{how}\n' for i, m in enumerate(models))
    path = folder / "SWEEP.toml"
    path.write_text(f'tasks = ["gest"]\nsamples = "{folder / "own.csv"}"\nout = "unused"\n{entries}')
    return path


@dataclass
class Cluster:
    """Three Ray nodes on loopback."""

    folder: Path
    environment: Mapping[str, str]
    port: int = 0
    dashboard: int = 0
    metrics: int = 0
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> "Cluster":
        self.port, self.dashboard, self.metrics, client = free_ports(4)
        head = ["--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}", "--dashboard-host=127.0.0.1"]
        head += [f"--ray-client-server-port={client}", f"--metrics-export-port={self.metrics}", f"--temp-dir={self.folder}/ray"]
        try:
            self._start([*head, "--num-cpus=0"])
            for _ in range(WORKERS):
                self._start([f"--address=127.0.0.2:{self.port}", "--num-cpus=1"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self.nodes):
            self.kill(node)

    def _start(self, arguments: Sequence[str]) -> None:
        number = len(self.nodes)
        command = [*START, "start", *arguments, f"--node-ip-address=127.0.0.{number + 2}", "--num-gpus=0"]
        command += ["--object-store-memory=80000000", f"--dashboard-agent-listen-port={free_ports(1)[0]}", "--block"]
        path = self.folder / f"node{number}.log"
        for last in (False, False, True):  # on a busy machine Ray's own half minute for a node's start may not be enough
            with path.open("wb") as log:
                node = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.folder)
            while node.poll() is None and "Ray runtime started" not in path.read_text():
                time.sleep(0.1)
            if node.poll() is None:
                self.nodes.append(node)
                return
            assert not last, path.read_text()[-2000:]

    @staticmethod
    def kill(node: subprocess.Popen[bytes]) -> None:
        """A machine is gone: everything on it dies at once."""
        with contextlib.suppress(psutil.Error):
            for process in (*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        node.wait()

    def ask(self, *arguments: str) -> str:
        """`ray job …` as the submitter gives it: where it fails again, as Kubernetes does. Raises where it goes on failing."""
        command = [*START, "job", arguments[0], f"--address=http://127.0.0.1:{self.dashboard}", *arguments[1:]]
        for last in (False, False, False, True):  # the dashboard waits 10 s for the head's agent, which may still be starting
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode == 0 or (arguments[0] == "submit" and self.job()):
                break
            assert not last, done.stdout[-2000:] + done.stderr[-2000:]
            time.sleep(5)
        return done.stdout

    def job(self) -> tuple[str, str] | None:
        """The job's state and what it ended with, from the dashboard, as KubeRay asks for it; None where nobody says."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.dashboard}/api/jobs/{JOB}")
        request.add_header("Authorization", f"Bearer {self.environment['RAY_AUTH_TOKEN']}")
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            told = json.load(answer)
            return str(told["status"]), str(told.get("message") or "")
        return None

    def scrape(self) -> dict[tuple[str, str], float]:
        """(metric, model or stage …) → value, of this program's metrics on the head's exporter."""
        found: dict[tuple[str, str], float] = {}
        known = {f"ray_{metric.name}": metric for metric in METRICS}
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.2:{self.metrics}/metrics", timeout=10) as page,
        ):
            for family in text_string_to_metric_families(page.read().decode()):
                for sample in family.samples:
                    if metric := known.get(sample.name):
                        labels = "/".join(sample.labels[label] for label in metric.labels if label != "run")
                        found[metric.name, labels] = sample.value
        return found


@dataclass
class Seen:
    """What the scrapes showed."""

    scrapes: int = 0
    most: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, page: Mapping[tuple[str, str], float]) -> None:
        """One scrape."""
        self.scrapes += bool(page)
        for key, value in page.items():
            self.most[key] = max(value, self.most.get(key, value))

    def total(self, name: str) -> float:
        """The largest values of a metric, summed over what else its labels say."""
        return sum(value for (metric, _), value in self.most.items() if metric == name)

    @property
    def scorers(self) -> int:
        """Replicas that have scored something."""
        return sum(metric == HOST_MEMORY.name for metric, _ in self.most)


def evaluator(environment: Mapping[str, str], *arguments: str) -> str:
    """A command's stdout. Raises where it fails."""
    command = [sys.executable, "-m", "evaluator", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def watch(cluster: Cluster, enough: float, release: Path | None) -> tuple[tuple[str, str], Seen, float]:
    """Scrape until the job has ended; kill a machine when so many answers are stored, and some of every replica's.

    Returns how the job ended, what the scrapes showed, and how many answers were stored at the kill.
    """
    seen, killed, begun = Seen(), 0.0, time.monotonic()
    while (state := cluster.job()) is None or state[0] not in ("SUCCEEDED", "FAILED", "STOPPED"):
        seen.add(cluster.scrape())
        if not killed and seen.total(REQUESTS.name) >= enough and seen.scorers >= WORKERS:
            killed = seen.total(REQUESTS.name)
            cluster.kill(cluster.nodes.pop())
        if release is not None and min(seen.total(CHUNK_FAILURES.name), seen.total(RESTARTS.name)) >= 1:
            release.touch()
        assert time.monotonic() - begun < 900, cluster.ask("logs", JOB)[-3000:]
        time.sleep(0.5)
    return state, seen, killed


def left_behind(folder: Path) -> list[int]:
    """Processes of the cluster that stay: Ray's agents look every few seconds whether their node is still there."""
    deadline = time.monotonic() + 60
    while True:
        left = [p.pid for p in psutil.process_iter(["cmdline"]) if f"{folder}/ray" in " ".join(p.info["cmdline"] or [])]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def own_environment(token: str) -> dict[str, str]:
    """Of all processes of the rehearsal: a cluster on loopback, which this token opens."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_"))}
    ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_USAGE_STATS_ENABLED": "0"}
    ray |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_metrics_report_interval_ms": "1000"}
    ray |= {"RAY_memory_monitor_refresh_ms": "0"}  # the machine's memory is shared with others
    return {**kept, **ray, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}


def rehearse(
    folder: Path,
    models: Sequence[Path],
    sentences: int,
    *,
    how: str = 'engine = "transformers"',
    out: str = "",
    more: Mapping[str, str] | None = None,
    part: float = 0.3,
    release: Path | None = None,
) -> dict[str, Any]:
    """All of it. `how`: the engine in SWEEP.toml; `out`: where the run is (default: in the folder); `more`: its environment;
    `part`: answers before the kill; `release`: a file that engines may wait for, made when the metrics tell of the kill.
    """
    token = secrets.token_hex(16)
    environment = {**own_environment(token), **(more or {})}
    sweep, run = write_sweep(folder, models, sentences, how), out or str(folder / "run")
    begun = time.monotonic()
    if release is not None:
        release.touch()
    evaluator(environment, "sweep", str(sweep), "--out", str(folder / "calm"), "--ray", "none", "--no-verify")
    calm = evaluator(environment, "report", str(folder / "calm"), "--format", "csv")
    undisturbed, total = time.monotonic() - begun, Run.open(folder / "calm").timings()["requests"].sum()
    attempt = [sys.executable, "-m", "evaluator.deploy.attempt", str(folder / "marks"), sys.executable, "-m", "evaluator"]
    asked = ["sweep", str(sweep), "--out", run, "--ray", "auto", "--no-verify", "--log-format", "json"]
    if release is not None:
        release.unlink()
    begun = time.monotonic()
    with Cluster(folder, environment) as cluster:
        cluster.ask("submit", "--no-wait", f"--submission-id={JOB}", "--", *attempt, *asked)
        state, seen, stored_then = watch(cluster, part * total, release)
        logs = cluster.ask("logs", JOB)
    assert state[0] == "SUCCEEDED", f"{state}\n{logs[-3000:]}"
    took = time.monotonic() - begun
    report = evaluator(environment, "report", run, "--format", "csv")
    assert report == calm, "the report differs from the undisturbed run's"
    stored = subprocess.run([sys.executable, "-c", STORED, run], env=environment, capture_output=True, text=True, check=True)
    assert int(stored.stdout) == total, f"{stored.stdout} of {total} answers were stored"
    killed = stored_then / total
    assert 0 < killed < 1, f"killed at {killed}"
    # Ray shows a counter from its first count on: of requests that were given up there is none.
    names = {name for name, _ in seen.most}
    assert names == {metric.name for metric in METRICS} - {FAILURES.name}, names
    assert seen.total(RESTARTS.name) >= 1
    assert token not in logs
    lines = [json.loads(line) for line in logs.splitlines() if line.startswith('{"time"')]
    assert any("died while" in line["message"] for line in lines), logs[-2000:]
    left = left_behind(folder)
    assert not left, f"processes are left: {left}"
    return {
        "nodes": WORKERS + 1,
        "models": len(models),
        "sentences": sentences,
        "requests": total,
        "run": "object storage" if out else "folder",
        "undisturbed_seconds": round(undisturbed, 1),
        "rehearsal_seconds": round(took, 1),
        "killed_at": round(killed, 2),
        "restarts": int(seen.total(RESTARTS.name)),
        "most_replicas": int(seen.total(REPLICAS.name)),
        "scrapes": seen.scrapes,
        "metrics_seen": len({name for name, _ in seen.most}),
        "last_progress_seen": seen.total(PROGRESS.name) > 0,
        "log_lines": len(lines),
        "report_equal": True,
        "processes_left": len(left),
    }


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """An S3 server on this machine: a run's URL there, and the environment that reaches it."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    reach = {
        "AWS_ACCESS_KEY_ID": "made",
        "AWS_SECRET_ACCESS_KEY": "up",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }
    with (folder / "s3.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=made/d/us-east-1/s3/x"}
            for _ in range(300):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/runs", method="PUT", headers=signed), timeout=10)
                    break
                time.sleep(0.1)
            yield "s3://runs/night", reach
        finally:
            server.kill()


def main() -> None:
    """Rehearse with the demo's real model and random-weight ones."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--s3", action="store_true", help="the run lies on an S3 server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ev", dir="/tmp") as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        out, more = servers.enter_context(s3(folder)) if options.s3 else ("", {})
        record = rehearse(folder, [demo_model()] * options.models, options.sentences, out=out, more=more)
    print(json.dumps(record, indent=1))
    if options.json:
        write_record(options.json, record)


if __name__ == "__main__":
    main()
