"""Runs on object storage, against a real S3 server on this machine: nothing acknowledged is lost, whatever breaks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_server import BUCKET, Line, environment, s3_server

import evaluator
from evaluator.store import remote
from evaluator.store.errors import StoreError
from evaluator.store.remote import lease, mirror
from evaluator.store.run import Run
from evaluator_serving.answers import Answer
from evaluator_serving.errors import InputError

pytest.importorskip("obstore")
pytest.importorskip("moto")

Machine = Callable[..., Path]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The server's endpoint."""
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """A URL of the test's own."""
    return f"s3://{BUCKET}/team/{request.node.name.replace('[', '-').replace(']', '')}"


@pytest.fixture
def machine(server: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Make this process another machine: an empty disk, and a line to the server. Gives the run's folder there."""
    known = dict(remote._mirrors)

    def become(name: str, endpoint: str = server) -> Path:
        remote._mirrors.clear()
        for key, value in environment(endpoint, tmp_path / name).items():
            monkeypatch.setenv(key, value)
        return remote.run_folder(url)

    remote._mirrors.clear()
    yield become
    remote._mirrors.clear()
    remote._mirrors.update(known)


def answer(number: int) -> Answer:
    """One answer of a made-up model."""
    return Answer(f"r{number:03}", ((number,),), ((-0.5 - number,),))


def begin(folder: Path) -> Run:
    """A run with one model, `m`."""
    run = Run.create_or_open(folder, protocol="default", provenance={"command": ["x"]})
    with run.locked():
        run.extend(models={"m": {"spec": "m", "fingerprint": "f"}})
    return run


def add(run: Run, number: int) -> None:
    """Store one answer, as the loop does with a chunk."""
    run.add_answers(run.answers_folder("m"), {f"r{number:03}": "masked"}, [answer(number)])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but those of this machine alone."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_another_machine_sees_the_same_run_and_readers_write_nothing(machine: Machine, url: str) -> None:
    run = begin(machine("first"))
    firsts = dict(remote._mirrors)
    with run.locked():
        add(run, 1)
        run.add_failures([("m", "r9", "broken"), ("m", "", "whole")])
        run.clear_model_failure("m")
        stored = contents(run.path)
    run.write_table("gest", run.failures())  # derived: stays here
    other = Run.open(machine("second"))
    assert contents(other.path) == stored
    assert other.path != run.path
    assert other.done("m") == {"r001"}
    assert other.failures()["request"].to_list() == ["r9"]
    assert (other.shown, other.busy) == (url, False)
    remote._mirrors.update(firsts)
    with run.locked():
        add(run, 2)
    opened = evaluator.open(url)
    assert opened.models == ["m"]
    assert set(opened.answers("m")["request"]) == {"r001", "r002"}
    stored = contents(other.path)
    other.write_table("gest", other.failures())
    assert contents(machine("third")) == stored


def test_a_reader_fetches_what_has_changed_and_drops_what_is_gone(machine: Machine, server: str) -> None:
    run = begin(machine("writer"))
    writers = dict(remote._mirrors)
    reader = Run.open(machine("reader"))
    readers = dict(remote._mirrors)
    remote._mirrors.update(writers)
    with run.locked():
        add(run, 1)
        run.add_failures([("m", "", "whole")])
        remote.refresh(reader.path)
        assert (reader.done("m"), reader.failures().height, reader.busy) == ({"r001"}, 1, True)
        inode = next((reader.path / "logprobs").rglob("part-*")).stat().st_ino
        run.clear_model_failure("m")
        add(run, 2)
        remote.refresh(reader.path)
        assert (reader.done("m"), reader.failures().height) == ({"r001", "r002"}, 0)
        assert inode in {part.stat().st_ino for part in (reader.path / "logprobs").rglob("part-*")}, "a part was fetched again"
    assert readers.keys() <= remote._mirrors.keys()


DRIVER = """
import sys, time
from evaluator.store import remote
sys.path.insert(0, sys.argv[2])
from test_remote import add, begin
run = begin(remote.run_folder(sys.argv[1]))
with run.locked():
    for number in range(int(sys.argv[3])):
        if f"r{number:03}" not in run.done("m"):
            add(run, number)
            print(number, flush=True)
print("end", flush=True)
"""


def driver(url: str, environment: dict[str, str], count: int) -> "subprocess.Popen[str]":
    """A process that stores answers and acknowledges each on stdout."""
    command = [sys.executable, "-c", DRIVER, url, str(Path(__file__).parent), str(count)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        command, env=environment | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def acknowledged(process: "subprocess.Popen[str]", most: int) -> list[str]:
    """The first lines of a driver."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if len(lines) == most:
            break
    return lines


@pytest.mark.slow
def test_drivers_killed_at_any_moment_lose_nothing_and_the_next_machine_goes_on(
    machine: Machine, server: str, url: str, tmp_path: Path
) -> None:
    done: list[str] = []
    for number, until in enumerate((1, 7, 12)):
        process = driver(url, environment(server, tmp_path / f"disk{number}"), 40)
        done += acknowledged(process, until)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        done += rest.split()
        stored = Run.open(machine(f"reader{number}")).done("m")
        assert {f"r{int(each):03}" for each in done} <= stored
    last = driver(url, environment(server, tmp_path / "last"), 40)
    out, err = last.communicate(timeout=120)
    assert out.split()[-1] == "end", err
    run = Run.open(machine("reader"))
    answers = run.answers("m")
    assert answers["request"].sort().to_list() == [f"r{number:03}" for number in range(40)]
    assert dict(answers.select("request", "logprobs").iter_rows()) == {f"r{number:03}": [-0.5 - number] for number in range(40)}
    assert len(list((run.path / "logprobs").rglob("part-*"))) <= 43, "more than what was in flight was scored again"


def test_a_second_writer_is_refused_until_the_first_is_dead(machine: Machine, server: str, url: str, tmp_path: Path) -> None:
    process = driver(url, environment(server, tmp_path / "first"), 10_000)
    acknowledged(process, 2)
    run = Run.open(machine("second"))
    try:
        assert run.busy
        with pytest.raises(InputError, match=rf"{url} is being written by process {process.pid} on "), run.locked():
            pass
    finally:
        process.kill()
        process.communicate()
    time.sleep(2 * lease.beat_seconds(lease.lease_seconds()))  # what was found out is believed for a renewal's time
    begun = time.monotonic()
    assert not run.busy
    with run.locked():
        assert time.monotonic() - begun > lease.lease_seconds() / 2
        assert run.busy
        add(run, 20_000)
    begun = time.monotonic()
    with run.locked():  # given back: nobody waits
        pass
    assert time.monotonic() - begun < 1.5


def test_a_writer_that_was_cut_off_writes_nothing_after_it_was_taken_over(machine: Machine, server: str, url: str) -> None:
    with Line(int(server.rpartition(":")[2])) as line:
        cut = begin(machine("cut", line.endpoint))
        mine = dict(remote._mirrors)
        with cut.locked():
            add(cut, 1)
            line.down = True
            line.hang_up()
            other = Run.open(machine("other"))
            with other.locked():
                add(other, 2)
                record = contents(other.path)
                line.down = False
                remote._mirrors.update(mine)
                time.sleep(2 * lease.beat_seconds(lease.lease_seconds()))
                with pytest.raises(StoreError, match=r"taken .* over while this one was cut off"):
                    cut.update_model("m", verified="wrong")
    assert contents(machine("reader")) == record


def test_a_line_that_breaks_and_a_server_that_fails_lose_and_double_nothing(machine: Machine, server: str) -> None:
    with Line(int(server.rpartition(":")[2]), cut=0.2, fail=0.2) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked():
            for number in range(6):
                add(run, number)
        stored = contents(run.path)
    assert contents(machine("reader")) == stored
    assert sum(name.startswith("logprobs/") for name in stored) == 6


def test_a_network_that_is_gone_for_seconds_is_waited_for(machine: Machine, server: str) -> None:
    with Line(int(server.rpartition(":")[2])) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked():
            add(run, 1)
            line.down = True
            line.hang_up()
            threading.Timer(2.5, lambda: setattr(line, "down", False)).start()
            with pytest.warns(UserWarning, match="trying again for up to 600 s"):
                add(run, 2)
    assert Run.open(machine("reader")).done("m") == {"r001", "r002"}


def test_a_server_that_never_answers_again_ends_in_one_line(
    machine: Machine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Line(int(server.rpartition(":")[2])) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked():
            add(run, 1)
            monkeypatch.setattr("evaluator.store.remote.lease.WORK", 1.0)
            line.down = True
            line.hang_up()
            time.sleep(lease.lease_seconds() / 2 + 0.2)  # the next write first asks whether the lease is still held
            with pytest.raises(StoreError, match=r"can't be reached .*: check the network") as raised:
                add(run, 2)
    assert isinstance(raised.value, InputError)
    assert Run.open(machine("reader")).done("m") == {"r001"}


def test_a_listing_that_lags_is_asked_for_again(machine: Machine, server: str) -> None:
    run = begin(machine("writer"))
    with Line(int(server.rpartition(":")[2])) as line:
        machine("reader", line.endpoint)
        mirrors = dict(remote._mirrors)
        run = Run(machine("writer"))
        with run.locked():
            for number in range(3):
                add(run, number)
        line.lag = 2
        remote._mirrors.update(mirrors)
        (reader,) = mirrors
        remote.refresh(reader)
        assert line.lag == 0
        assert Run.open(reader).done("m") == {"r000", "r001", "r002"}


def test_what_a_full_disk_kept_from_being_written_here_is_stored(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(machine("writer"))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with run.locked():
        add(run, 1)
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            add(run, 2)
    monkeypatch.undo()
    assert Run.open(machine("reader")).done("m") == {"r001", "r002"}


def test_a_storage_that_knows_no_conditions_is_refused(machine: Machine, server: str) -> None:
    with Line(int(server.rpartition(":")[2]), deaf=True) as line, pytest.raises(InputError, match="ignores conditional writes"):
        begin(machine("writer", line.endpoint))


def test_two_processes_of_one_machine_have_working_folders_of_their_own(
    machine: Machine, server: str, url: str, tmp_path: Path
) -> None:
    process = driver(url, environment(server, tmp_path / "shared"), 10_000)
    try:
        acknowledged(process, 1)
        mine = machine("shared")
        assert mine.parent.name == "1"
        assert Run.open(mine).done("m")
    finally:
        process.kill()
        process.communicate()


def test_another_bucket_than_a_runs_is_refused(machine: Machine, url: str) -> None:
    import obstore
    from obstore.store import from_url

    folder = machine("writer")
    obstore.put(from_url(url, client_options={"allow_http": True}), "holiday/photo.jpg", b"mine")
    with pytest.raises(InputError, match=r"is not a run \(no run.json"):
        Run.open(machine("reader"))
    folder = machine("other")
    with pytest.raises(InputError, match="holds something that is not a run"):
        begin(folder)


def test_what_can_never_work_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("here")
    told = {
        "s3://no-such-bucket/run": "there is no such bucket",
        f"s3://key:secret@{BUCKET}/run": "is given with credentials",
        f"s3://{BUCKET}/run?X-Amz-Signature=secret": "is given with credentials",
        f"s3://{BUCKET}/../run": "is no place for a run",
        "ftp://host/run": "ftp:// is no storage",
        "s3:///run": "names no bucket",
        "az://container/run": "AZURE_STORAGE_ACCOUNT_NAME",
    }
    for name in [name for name in os.environ if name.startswith("AZURE")]:
        monkeypatch.delenv(name)
    for place, message in told.items():
        with pytest.raises(InputError, match=message) as raised:
            remote.run_folder(place)
        assert "secret" not in str(raised.value)
        assert "\n" not in str(raised.value)
    with monkeypatch.context() as absent:
        absent.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(InputError, match=r'need obstore: pip install "stereotype-evaluator\[cloud\]"'):
            remote.run_folder(f"s3://{BUCKET}/elsewhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example:9000")
    with pytest.raises(InputError, match="is plain HTTP"):
        remote.run_folder(f"s3://{BUCKET}/run")


def test_paths_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert remote.run_folder("runs/a") == Path("runs/a")
    assert remote.run_folder("C:/runs/a") == Path("C:/runs/a")
    assert remote.run_folder(f"file://{tmp_path}/a") == tmp_path / "a"
    assert remote.shown(tmp_path) == str(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["logprobs/../../x", "/etc/passwd", "logprobs", "logprobs/a\0b", "tables/x.parquet", "..", "logprobs/..\\x", "notes.txt"],
)
def test_objects_that_are_no_part_of_a_run_are_left_alone(name: str) -> None:
    assert not mirror._belongs(name)
