"""Guarantees of runs on object storage, tested with the program's commands against one local server per cloud.

    python benchmarks/object_storage.py [--servers s3 gs az] [--sentences 4000] [--json FILE]

The servers are those of the tests (tests/object_servers.py): moto for S3, fake-gcs-server for Google, Azurite for Azure. On
each, a driver is cut off from the network for some seconds and then gets SIGKILL, a second writer is refused meanwhile, and
the same command with an empty disk finishes the run with the report of an uninterrupted one. Configuration errors must end in
one line.
"""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import polars as pl  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from object_servers import SERVERS, Line, Server  # noqa: E402
from output import benchmark_parser, write_record  # noqa: E402

from evaluator.cli import cli  # noqa: E402
from evaluator.store.remote import run_folder  # noqa: E402
from evaluator.store.remote.objects import ConflictError, Objects, Version  # noqa: E402
from tests.e2e.conftest import sentences, write_samples  # noqa: E402
from tests.tiny_models import tiny_model  # noqa: E402

LISTED = 1001
"""Objects of a listing: more than a page of S3 holds."""
LEASE = {"EVALUATOR_LEASE": "20"}
"""Longer than the network is away, so that the driver isn't taken over."""


def evaluator(environment: dict[str, str], *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """A command of the program, to its end."""
    command = [sys.executable, "-m", "evaluator", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


@contextlib.contextmanager
def reached(environment: dict[str, str]) -> Iterator[None]:
    """This process with another one's environment."""
    before = dict(os.environ)
    os.environ.update(environment)
    yield
    os.environ.clear()
    os.environ.update(before)


def conditions(server: Server, folder: Path) -> dict[str, Any]:
    """Eight writers want the same object at the same time, 50 times: how often not exactly one of them got it."""
    with reached(server.environment(folder / "conditions")):
        writers = [Objects(server.url("conditions")) for _ in range(8)]

        def attempt(number: int, known: Version | None) -> Version | None:
            with contextlib.suppress(ConflictError):
                return writers[number].put("lease.json", f"{known} {number}".encode(), known)
            return None

        known, wrong = None, 0
        with ThreadPoolExecutor(len(writers)) as pool:
            for _ in range(50):
                got = [done for done in pool.map(attempt, range(len(writers)), [known] * len(writers)) if done]
                wrong += len(got) != 1
                now = writers[0].get("lease.json")
                known = now.version if now else None
    return {"races": 50, "races_not_won_by_one": wrong}


def listing(server: Server, folder: Path) -> dict[str, Any]:
    """A listing of several pages."""
    with reached(server.environment(folder / "listing")):
        objects = Objects(server.url("listing"))
        names = [f"logprobs/m/part-é {number:05}" for number in range(LISTED)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: objects.overwrite(name, b"x", patience=30), names))
        found = objects.listing()
    return {"objects": len(names), "listed": len(found), "listing_is_whole": found == dict.fromkeys(names, 1)}


def parts(objects: Objects) -> int:
    """Parts of answers that are stored."""
    return sum(name.startswith("logprobs/") for name in objects.listing())


def until(process: "subprocess.Popen[str]", objects: Objects, count: int) -> None:
    """Wait for so many parts."""
    deadline = time.monotonic() + 120
    while parts(objects) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the run ended or stands still: {process.communicate()[1]}")
        time.sleep(0.05)


def finished_elsewhere(server: Server, folder: Path, arguments: list[str | Path], undisturbed: Path) -> dict[str, Any]:
    """The network away, a second writer, SIGKILL, and the same command on another machine."""
    url = server.url("night")
    command = [sys.executable, "-m", "evaluator", *map(str, [*arguments, url])]
    told: dict[str, Any] = {}
    with Line(server.port) as line, reached(server.environment(folder / "watcher")):
        objects = Objects(url)
        first = subprocess.Popen(
            command,
            env=server.environment(folder / "disk0", line.endpoint) | LEASE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(first, objects, 1)
        second = subprocess.Popen(
            command,
            env=server.environment(folder / "disk1") | LEASE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        line.down = True
        line.hang_up()
        time.sleep(1)
        seen = parts(objects)
        told["status_while_it_runs"] = evaluator(server.environment(folder / "disk2") | LEASE, "status", url).returncode
        time.sleep(4)
        told["parts_while_the_network_was_away"] = parts(objects) - seen
        line.down = False
        until(first, objects, seen + 2)
        told["parts_when_killed"] = parts(objects)
        still = first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.communicate()
        told["second_writer"] = {"says": last_line(second.communicate()[1]), "exit_code": second.returncode}
    told["killed_while_it_ran"] = still
    begun = time.monotonic()
    done = evaluator(server.environment(folder / "disk3") | LEASE, *arguments, url)
    told["finished_by_the_same_command"] = {"exit_code": done.returncode, "seconds": round(time.monotonic() - begun, 1)}
    return told | readers(server, folder, url, undisturbed)


def readers(server: Server, folder: Path, url: str, undisturbed: Path) -> dict[str, Any]:
    """Every command that reads, given the URL, and what is stored."""
    sweep = folder / "SWEEP.toml"
    sweep.write_text(f'tasks = ["gest-demo"]\nout = "{url}"\nlimit = 4\n[[models]]\nmodel = "{folder.parent / "model"}"\n')
    machine = server.environment(folder / "reader")
    few = ("--format", "csv", "--permutations", "10", "--resamples", "10")
    commands = {
        "status": ("status", url),
        "report": ("report", url, "--format", "csv"),
        "compare": ("compare", url, undisturbed, *few),
        "scores": ("scores", url),
        "plan": ("plan", sweep, "--out", url),
    }
    with reached(machine):  # in this process: five times an import would be most of the time
        done = {name: CliRunner().invoke(cli, list(map(str, command))) for name, command in commands.items()}
        same = CliRunner().invoke(cli, ["report", str(undisturbed), "--format", "csv"]).stdout == done["report"].stdout
        found = run_folder(url).glob("logprobs/*/*/part-*.parquet")
        stored = pl.concat([pl.read_parquet(part).filter(candidate=0)["request"] for part in found])
    return {
        "readers": {name: each.exit_code for name, each in done.items()},
        "report_equals_an_undisturbed_runs": same,
        "answers": len(stored),
        "answers_doubled": len(stored) - stored.n_unique(),
    }


def last_line(text: str) -> str:
    """The last line that was said."""
    return (text.strip().splitlines() or [""])[-1]


def refusals(server: Server, folder: Path) -> dict[str, Any]:
    """What can't work: exit code, the line, and how long it took."""
    machine = server.environment(folder / "refused")
    cases = {
        "no such bucket": (machine, f"{server.cloud}://no-such-place/night"),
        "no server": (server.environment(folder / "refused", "http://127.0.0.1:9"), server.url("night")),
    }
    if server.cloud == "az":  # the others take any key
        cases["wrong key"] = (machine | {"AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmcta2V5"}, server.url("night"))
    told = {}
    for name, (environment, url) in cases.items():
        begun = time.monotonic()
        done = evaluator(environment, "status", url)
        said = [line for line in done.stderr.strip().splitlines() if "trying again" not in line]
        told[name] = {
            "exit_code": done.returncode,
            "seconds": round(time.monotonic() - begun, 1),
            "lines": len(said),
            "says": last_line(done.stderr),
        }
    return told


def judged(found: dict[str, Any]) -> list[str]:
    """The promises that were not held."""
    elsewhere = found["run"]
    atomic = not found["program"].startswith("moto")  # which compares and writes in two steps
    told = {
        "a race was not won by exactly one writer": atomic and found["races_not_won_by_one"] > 0,
        "a listing is not whole": not found["listing_is_whole"],
        "the second writer was not refused in one line": elsewhere["second_writer"]["exit_code"] != 2
        or "is being written by process" not in elsewhere["second_writer"]["says"],
        "the driver was not killed while it ran": not elsewhere["killed_while_it_ran"],
        "another machine didn't finish the run": elsewhere["finished_by_the_same_command"]["exit_code"] != 0,
        "a command can't read the URL": any(elsewhere["readers"].values()) or elsewhere["status_while_it_runs"] != 0,
        "the report differs": not elsewhere["report_equals_an_undisturbed_runs"],
        "what can't work isn't one line": any(
            each["exit_code"] != 2 or each["lines"] != 1 or each["seconds"] > 60 for each in found["refused"].values()
        ),
    }
    return [text for text, wrong in told.items() if wrong]


def main() -> int:
    """Try each server and add it to the record; exit code 1 if a promise was not held."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--servers", nargs="+", choices=sorted(SERVERS), default=list(SERVERS))
    parser.add_argument("--sentences", type=int, default=4000)
    options = parser.parse_args()
    record: dict[str, Any] = json.loads(options.json.read_text()) if options.json.is_file() else {"servers": {}}
    record |= {"python": platform.python_version(), "obstore": version("obstore"), "sentences": options.sentences}
    with tempfile.TemporaryDirectory(prefix="object-storage-") as name:
        folder = Path(name)
        model = tiny_model("gpt2", folder / "model", n_layer=8)
        samples = write_samples(folder / "made-up.csv", sentences(options.sentences))
        arguments: list[str | Path] = ["run", "gest", "--samples", samples, "--model", model, "--out"]
        undisturbed = folder / "undisturbed"
        done = evaluator(dict(os.environ), *arguments, undisturbed)
        if done.returncode:
            sys.exit(done.stderr)
        for cloud in options.servers:
            place = folder / cloud
            place.mkdir()
            with SERVERS[cloud](place) as server:
                found = {"program": server.version} | conditions(server, place) | listing(server, place)
                found["run"] = finished_elsewhere(server, place, arguments, undisturbed)
                found["refused"] = refusals(server, place)
            record["servers"][cloud] = found | {"not_held": judged(found)}
            print(json.dumps(record, indent=1, ensure_ascii=False), flush=True)
            write_record(options.json, record)
    return 1 if any(record["servers"][cloud]["not_held"] for cloud in options.servers) else 0


if __name__ == "__main__":
    sys.exit(main())
