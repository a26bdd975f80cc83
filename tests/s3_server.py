"""An S3 server on this machine (moto's, a process of its own) and a bad line to it."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

BUCKET = "runs"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """A server with the bucket `runs`. Gives its endpoint."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                made = httpx.put(
                    f"{endpoint}/{BUCKET}", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=k/d/us-east-1/s3/x"}
                )
                assert made.status_code == 200, made.text
                break
            time.sleep(0.1)
        else:
            raise RuntimeError("moto's server doesn't start")
        yield endpoint
    finally:
        process.kill()
        process.wait()


def environment(endpoint: str, cache: object) -> dict[str, str]:
    """The environment of a process on a machine of its own: `cache` is its disk."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "EVALUATOR_"))},
        "AWS_ACCESS_KEY_ID": "planted-key-id",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "EVALUATOR_CACHE": str(cache),
        "EVALUATOR_LEASE": "3",
        "OMP_NUM_THREADS": "1",
    }


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
            listing = b"list-type=2" in request.partition(b"\r\n")[0]
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
            kept = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"if-match", b"if-none-match"))]
            request = b"\r\n".join(kept) + gap + body
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            self._open += [client, server]
            server.sendall(request)
            answer = b""
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
        body += client.recv(65536)
    return b"\r\n".join([*lines, b"connection: close"]) + b"\r\n\r\n" + body
