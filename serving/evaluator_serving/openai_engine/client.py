"""A JSON client for a server that may be busy, restarting or gone: retries with exponential back-off."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that the same request may not meet again a little later."""
_LONGEST_WAIT = 30.0


class ServerError(Exception):
    """A request that failed for good. `status` is the HTTP status, None where the server could not be reached."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to put up with a server.

    Attributes:
        retries: tries after the first.
        timeout: seconds until a response must have come.
        first_wait: seconds before the first retry; doubled for each further one, up to half a minute.
    """

    retries: int = 6
    timeout: float = 600.0
    first_wait: float = 0.5

    def wait(self, tried: int, asked: str | None) -> float:
        """Seconds before the next try, after `tried` ones; `asked` is the server's Retry-After header."""
        if asked is not None and asked.isdigit():
            return min(float(asked), _LONGEST_WAIT)
        # Spread out, so that clients that failed together don't come back together.
        return min(self.first_wait * 2.0 ** (tried - 1), _LONGEST_WAIT) * random.uniform(0.5, 1.0)


class Client:
    """JSON over HTTP below one base URL. May be used from several threads at once."""

    def __init__(self, url: str, *, key: str | None, connections: int, patience: Patience) -> None:
        self._patience = patience
        self._http = httpx.Client(
            base_url=url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(patience.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=False,  # a proxy meant for the internet must not get in the way of a server in the house
        )

    def get(self, path: str) -> Any:
        """The JSON at `path`. Raises ServerError."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers `body`. Raises ServerError."""
        return self._ask("POST", path, body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        tried = 0
        while True:
            tried += 1
            asked = None
            try:
                response = self._http.request(method, path, json=body)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                failure = ServerError(f"no answer ({error or type(error).__name__})")
            else:
                if response.is_success:
                    return _json(response)
                failure = ServerError(f"HTTP {response.status_code}: {_message(response)}", response.status_code)
                asked = response.headers.get("retry-after")
                if response.status_code not in _PASSING:
                    raise failure
            if tried > self._patience.retries:
                raise failure
            time.sleep(self._patience.wait(tried, asked))


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise ServerError(f"the answer from {response.url} is not JSON", response.status_code) from error


def _message(response: httpx.Response) -> str:
    """What the server says went wrong, in one line."""
    try:
        body = response.json()
        text = body["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(str(text).split())[:300]
