"""Fetching from a server on loopback: verified, whole or not at all, only what is absent."""

import hashlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluator.datasets import fetch as module
from evaluator.datasets.check import check
from evaluator.datasets.fetch import fetch
from evaluator.datasets.registry import DataFile, Dataset, SourceFile, datasets, published_scores
from evaluator.tasks import task
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError, NotNowError
from tests.commands import Command
from tests.local_server import Handler, LocalServer
from tests.ports import silent_port

FRAMES = Path(__file__).parent / "frames"
CONTENT = b"sentence,stereotype\nA,1\nB,2\n"


class Server:
    """Serves `content` (path → bytes, or what to do with the handler) and remembers what was asked for."""

    def __init__(self) -> None:
        self.content: dict[str, bytes | Callable[[Handler], None]] = {}
        self.asked: list[str] = []
        outer = self

        class Files(Handler):
            protocol_version = "HTTP/1.0"  # a connection ends with its answer

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                found = outer.content.get(self.path)
                if callable(found):
                    found(self)
                elif found is None:
                    self.send_error(404)
                else:
                    self.answer(200, found)

        self.http = LocalServer(Files)
        self.url, self.close = self.http.url, self.http.close


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)  # between the retries
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    it = Server()
    yield it
    it.close()


def plain(*contents: bytes) -> Dataset:
    sources = [SourceFile("owner/repo", f"data/{i}.csv", hashlib.sha256(c).hexdigest()) for i, c in enumerate(contents)]
    files = tuple(DataFile(f"made/{i}.csv", "table", 2, (source,)) for i, source in enumerate(sources))
    return Dataset("made", "made up", "MIT", files)


def pickled(server: Server, *contents: bytes, rows: int = 5) -> Dataset:
    sources = []
    for kind, content in zip(("intrasentence", "intersentence"), contents, strict=True):
        path = f"data/df_{kind}_xx.pkl"
        server.content[f"/owner/repo/HEAD/{path}"] = content
        sources.append(SourceFile("owner/repo", path, hashlib.sha256(content).hexdigest()))
    return Dataset("made", "made up", "MIT", (DataFile("made/dev_xx.json", "examples", rows, tuple(sources)),))


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_files_are_put_in_place_once(server: Server, tmp_path: Path) -> None:
    server.content = {f"/owner/repo/HEAD/data/{i}.csv": CONTENT for i in range(2)}
    it = plain(CONTENT, CONTENT)
    assert [fetched for _, fetched in fetch(it, tmp_path, server.url + "/")] == [True, True]
    assert everything(tmp_path) == ["made/0.csv", "made/1.csv"]
    assert (tmp_path / "made/1.csv").read_bytes() == CONTENT
    (tmp_path / "made/1.csv").unlink()
    server.asked.clear()
    assert [fetched for _, fetched in fetch(it, tmp_path, server.url)] == [False, True]
    assert server.asked == ["/owner/repo/HEAD/data/1.csv"]


def test_a_damaged_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    server.content = {"/owner/repo/HEAD/data/0.csv": CONTENT}
    (tmp_path / "made").mkdir()
    (tmp_path / "made/0.csv").write_bytes(CONTENT[:-1])
    assert [fetched for _, fetched in fetch(plain(CONTENT), tmp_path, server.url)] == [True]
    assert (tmp_path / "made/0.csv").read_bytes() == CONTENT


def test_a_file_that_changed_at_its_source_is_not_used(server: Server, tmp_path: Path) -> None:
    server.content = {"/owner/repo/HEAD/data/0.csv": CONTENT + b"C,3\n"}
    with pytest.raises(InputError, match=r"0\.csv has changed \(sha256 is not [0-9a-f]{12}…\)") as caught:
        list(fetch(plain(CONTENT), tmp_path, server.url))
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == []


def test_a_file_that_moved(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"404 .*data/0\.csv.*: the file may have moved") as caught:
        list(fetch(plain(CONTENT), tmp_path, server.url))
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == []


def test_a_server_that_fails_may_answer_later(server: Server, tmp_path: Path) -> None:
    server.content = {"/owner/repo/HEAD/data/0.csv": lambda handler: handler.send_error(503)}
    with pytest.raises(NotNowError, match=r"503 .*data/0\.csv.*: try again later"):
        list(fetch(plain(CONTENT), tmp_path, server.url))


def test_no_network(tmp_path: Path, server: Server) -> None:
    with (
        silent_port() as port,
        pytest.raises(NotNowError, match=r"can't reach http://.*0\.csv \(ConnectionError\): check the network") as caught,
    ):
        list(fetch(plain(CONTENT), tmp_path, f"http://127.0.0.1:{port}"))
    assert "\n" not in str(caught.value)


def test_a_download_that_breaks_off_is_tried_again(server: Server, tmp_path: Path) -> None:
    path = "/owner/repo/HEAD/data/0.csv"

    def busy(handler: Handler) -> None:
        server.content[path] = broken
        handler.send_error(503)

    def broken(handler: Handler) -> None:
        server.content[path] = CONTENT
        handler.answer(200, CONTENT[:9], {"content-length": str(len(CONTENT))})
        handler.close_connection = True

    server.content[path] = busy
    assert [fetched for _, fetched in fetch(plain(CONTENT), tmp_path, server.url)] == [True]
    assert len(server.asked) == 3
    assert (tmp_path / "made/0.csv").read_bytes() == CONTENT


def test_pickled_frames_are_converted(server: Server, tmp_path: Path) -> None:
    contents = [(FRAMES / f"df_{kind}_xx.pkl").read_bytes() for kind in ("intrasentence", "intersentence")]
    it = pickled(server, *contents)
    assert [fetched for _, fetched in fetch(it, tmp_path, server.url)] == [True]
    assert everything(tmp_path) == ["made/dev_xx.json"]
    assert [(f.status, f.rows) for f in check(it, tmp_path)] == [("converted", 5)]
    server.asked.clear()
    assert [fetched for _, fetched in fetch(it, tmp_path, server.url)] == [False]
    assert server.asked == []


def test_frames_with_rows_missing_are_refused(server: Server, tmp_path: Path) -> None:
    contents = [(FRAMES / f"df_{kind}_xx.pkl").read_bytes() for kind in ("intrasentence", "intersentence")]
    with pytest.raises(InputError, match=r"made/dev_xx\.json: .*owner/repo is wrong: 5 rows instead of 6"):
        list(fetch(pickled(server, *contents, rows=6), tmp_path, server.url))
    assert everything(tmp_path) == []


class Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.mkdir, (self.path,)


def test_a_pickle_that_would_run_code_is_refused_even_if_its_digest_is_right(server: Server, tmp_path: Path) -> None:
    harm = pickle.dumps(Harm(tmp_path / "harm"))
    with pytest.raises(
        InputError, match=r"df_intrasentence_xx\.pkl can't be converted: UnpicklingError: .*not allowed"
    ) as caught:
        list(fetch(pickled(server, harm, harm), tmp_path / "cache", server.url))
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == []
    assert not (tmp_path / "harm").exists()


def test_nothing_is_unpickled_before_its_digest_is_right(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [(FRAMES / f"df_{kind}_xx.pkl").read_bytes() for kind in ("intrasentence", "intersentence")]
    it = pickled(server, *contents)
    server.content["/owner/repo/HEAD/data/df_intersentence_xx.pkl"] = contents[1] + b" "
    monkeypatch.setattr(module.subprocess, "run", lambda *a, **k: pytest.fail("a conversion was started"))
    with pytest.raises(InputError, match=r"df_intersentence_xx\.pkl has changed"):
        list(fetch(it, tmp_path, server.url))


def test_from_fetch_to_the_task(
    server: Server, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    names = ("gest", "crows-pairs", "winobias", "eurogest")
    for name in names:
        for file in datasets()[name].files:
            (source,) = file.sources
            server.content[f"/{source.repository}/{source.commit}/{source.path}"] = (data_dir / file.local).read_bytes()
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path))
    monkeypatch.delenv("EVALUATOR_DATA", raising=False)
    ended = command("data", "check", *names)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 16
    assert f"evaluator: gest: {tmp_path}/data/gest/gest.csv: no such file: run `evaluator data fetch gest`" in ended.err
    ended = command("data", "fetch", *names, "--mirror", server.url)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == f"gest: {tmp_path}/data/gest/gest.csv (fetched)"
    ended = command("data", "check", *names)
    assert ended.code == 0
    assert [line.split() for line in ended.out.splitlines()][:3] == [
        ["name", "file", "rows", "status"],
        ["gest", "gest.csv", "3565", "ok"],
        ["crows-pairs", "crows_pairs_anonymized.csv", "1508", "ok"],
    ]
    assert ended.err == ""
    assert task("gest").load(DataSource()).frame.height == 3565


def test_the_public_folder_is_whole(data_dir: Path) -> None:
    found = {name: {f.status for f in check(it, data_dir)} for name, it in datasets().items()}
    converted = {name for name, statuses in found.items() if "converted" in statuses}
    assert converted == {f"stereoset-{language}" for language in ("en", "de", "fr", "es", "tr")}
    assert set().union(*found.values()) == {"ok", "converted"}


def test_changed_files_are_told(tmp_path: Path, data_dir: Path, command: Command) -> None:
    (tmp_path / "gest").mkdir()
    (tmp_path / "stereoset").mkdir()
    lines = (data_dir / "gest/gest.csv").read_bytes().splitlines(keepends=True)
    (tmp_path / "gest/gest.csv").write_bytes(b"".join(lines[:-1]))
    (tmp_path / "gest/gest_1.1.csv").write_bytes(b"".join(lines))
    (tmp_path / "stereoset/dev_de.json").write_text('{"data": {"intersentence": [{}]')
    ended = command("data", "check", "gest", "gest-1.1", "stereoset-de", "--data", str(tmp_path))
    assert ended.code == 2
    assert [line.split()[-1] for line in ended.out.splitlines()] == ["status", "changed", "changed", "changed"]
    assert [line.split(": ")[3] for line in ended.err.splitlines()] == [
        "3564 rows instead of 3565",
        "sha256 7e306adaa291… instead of 51d14d5dc648…",
        "no rows instead of 4226",
    ]


def test_the_list_names_every_data_set(tmp_path: Path, command: Command) -> None:
    ended = command("data", "list", "--data", str(tmp_path))
    assert ended.code == 0
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    rows = [line.split() for line in ended.out.splitlines() if not line.startswith(" ")]  # what each is about stands below it
    assert [row[0] for row in rows] == ["name", *datasets(), *published_scores()]
    assert rows[1][1:3] == ["shipped", "Apache-2.0"]
    assert rows[2][1:4] == ["no", "Apache-2.0", "kinit-sk/gest"]


def test_fetch_wants_names_and_known_ones(command: Command) -> None:
    refused = command("data", "fetch")
    assert (refused.code, "name the data sets to fetch, or give --all" in refused.err) == (2, True)
    refused = command("data", "fetch", "gets")
    assert (refused.code, "unknown data set 'gets'" in refused.err) == (2, True)
    assert command("data", "fetch", "gest-demo").out == "gest-demo: shipped with the package, nothing to fetch\n"
