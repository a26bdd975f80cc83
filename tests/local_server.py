"""HTTP servers on loopback: a silent handler that answers in one call, and the thread that serves it."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Handler(BaseHTTPRequestHandler):
    """What the handlers of all test servers have in common."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, status: int, content: Any = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send bytes, or any other value as JSON; without the body where a HEAD asks."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class LocalServer(ThreadingHTTPServer):
    """Serves at `url` from the moment that it is made until it is closed."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
