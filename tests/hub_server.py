"""A stand-in for the hub on loopback: what huggingface_hub asks of it, every request written down, and ways to go wrong."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from tests.local_server import Handler, LocalServer


@dataclass(frozen=True)
class Request:
    """One request: by whom (HF_HUB_USER_AGENT_ORIGIN of the client), what it asked for, and the bytes that it was sent."""

    client: str
    method: str
    path: str
    range: str
    sent: int


@dataclass(frozen=True)
class Hold:
    """A download stops half way: `reached` says so, `go` lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class HubServer:
    """Serves folders as models (id → folder) at `url` until it is closed.

    Attributes:
        gated: ids whose files nobody may have.
        drops: file name → how many more times its connection is broken half way through.
        token: what a client must show, if anything.
        holds: file name → where its second half waits.
    """

    def __init__(self, models: Mapping[str, Path]) -> None:
        self.models = dict(models)
        self._log: list[Request] = []
        self._under_way = 0
        self._changed = threading.Condition()
        self.gated: set[str] = set()
        self.drops: Counter[str] = Counter()
        self.token: str | None = None
        self.holds: dict[str, Hold] = {}
        hub = self

        class Files(Handler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

        self._server = LocalServer(Files)
        self.url = self._server.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    @property
    def log(self) -> list[Request]:
        """Requests in the order in which they were answered, those included whose client knows already that they were."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=60)
            return list(self._log)

    def fetched(self, client: str | None = None) -> Counter[str]:
        """How often each `model/file` was sent (whole or from some byte on), to one client or to all."""
        counted: Counter[str] = Counter()
        for request in self.log:
            if request.method == "GET" and "/resolve/" in request.path and client in (None, request.client):
                model, _, rest = request.path.removeprefix("/").partition("/resolve/")
                if not request.range.startswith("bytes=0-1"):  # a safetensors header
                    counted[f"{model}/{rest.partition('/')[2]}"] += 1
        return counted

    def answer(self, handler: Handler) -> None:
        """Answer one request."""
        path = unquote(urlsplit(handler.path).path)
        agent = handler.headers.get("user-agent", "")
        client = next((part.partition("/")[2] for part in agent.split("; ") if part.startswith("origin/")), "")
        asked = handler.headers.get("range", "")
        sent = 0
        with self._changed:
            self._under_way += 1
        try:
            sent = self.route(handler, path, asked)
        except ConnectionError:  # the client was killed
            handler.close_connection = True
        finally:
            with self._changed:
                self._log.append(Request(client, handler.command, path, asked, sent))
                self._under_way -= 1
                self._changed.notify_all()

    def route(self, handler: Handler, path: str, asked: str) -> int:
        """Send what is at `path`; returns the number of bytes."""
        name = next((n for n in self.models if f"/{n}/" in f"{path}/"), None)
        if self.token and handler.headers.get("authorization") != f"Bearer {self.token}":
            return reply(handler, 401, {"x-error-message": "Invalid credentials"})
        if name is None:
            return reply(handler, 404, {"x-error-code": "RepoNotFound"})
        commit = commit_of(name)
        revision, _, file = path.partition(name)[2].removeprefix("/").partition("/")[2].partition("/")
        if revision not in ("", "main", commit):
            return reply(handler, 404, {"x-error-code": "RevisionNotFound"})
        folder = self.models[name]
        files = {entry.relative_to(folder).as_posix(): entry for entry in sorted(folder.rglob("*")) if entry.is_file()}
        if path.startswith("/api/"):
            if "/tree/" in path:
                told = ({"path": at, "size": file.stat().st_size, "oid": _etag(file)} for at, file in files.items())
                listing: Any = [{"type": "file", **one} for one in told]
            else:
                listing = {"id": name, "sha": commit, "siblings": [{"rfilename": at} for at in files]}
            return reply(handler, 200, {"content-type": "application/json"}, json.dumps(listing).encode())
        if name in self.gated:
            return reply(handler, 403, {"x-error-code": "GatedRepo"})
        target = self.models[name] / file
        if not target.is_file():
            return reply(handler, 404, {"x-error-code": "EntryNotFound", "x-repo-commit": commit})
        return self._send(handler, target, {"x-repo-commit": commit, "etag": f'"{_etag(target)}"'}, asked)

    def _send(self, handler: Handler, file: Path, headers: dict[str, str], asked: str) -> int:
        data, status, body = file.read_bytes(), 200, handler.command != "HEAD"
        whole = len(data)
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data = data[int(first) : int(last) + 1 if last else None]
            headers["content-range"] = f"bytes {first}-{int(first) + len(data) - 1}/{whole}"
            status = 206
        with self._changed:
            broken = body and not asked.startswith("bytes=0-1") and self.drops[file.name] > 0
            self.drops[file.name] -= broken
        if not broken and not (body and file.name in self.holds and not asked):
            return reply(handler, status, headers, data)
        half = len(data) // 2
        handler.answer(status, data[:half], {**headers, "content-length": str(len(data))})
        if broken:
            handler.wfile.flush()
            handler.close_connection = True
            return half
        hold = self.holds[file.name]
        hold.reached.set()
        hold.go.wait()
        handler.wfile.write(data[half:])
        return len(data)


def commit_of(name: str) -> str:
    """The one commit of a model."""
    return hashlib.sha1(name.encode()).hexdigest()


def reply(handler: Handler, status: int, headers: Mapping[str, str], data: bytes = b"") -> int:
    """Answer; returns the number of bytes that were sent."""
    handler.answer(status, data, headers)
    return 0 if handler.command == "HEAD" else len(data)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@contextmanager
def hub_served(models: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with the models, which this process asks, and an empty cache of its files."""
    with HubServer(models) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server
