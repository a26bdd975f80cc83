"""A JSON client for a server that may be busy, restarting or gone: retries with exponential back-off."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random_exponential

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that the same request may not meet again a little later."""
_LONGEST_WAIT = 30.0


class ServerError(Exception):
    """A request that failed.

    Attributes:
        status: the HTTP status, None where the server could not be reached.
        passing: whether the same request may succeed a little later.
        wait: seconds that the server asks to wait before that.
    """

    def __init__(self, message: str, status: int | None = None, *, passing: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.passing = passing
        self.wait = wait


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

    def retrying(self) -> Retrying:
        """Calls a function until it raises no passing ServerError; raises the last one in the end."""
        # Half of a wait is chance, so that clients that failed together don't come back together.
        half = {"multiplier": self.first_wait / 2, "max": _LONGEST_WAIT / 2}
        spread = wait_exponential(**half) + wait_random_exponential(**half)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.wait if isinstance(error, ServerError) else None
            return spread(state) if asked is None else min(asked, _LONGEST_WAIT)

        return Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ServerError) and error.passing),
            stop=stop_after_attempt(self.retries + 1),
            wait=wait,
            sleep=time.sleep,
            reraise=True,
        )


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
        return self._patience.retrying()(self._ask, "GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers `body`. Raises ServerError."""
        return self._patience.retrying()(self._ask, "POST", path, body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            response = self._http.request(method, path, json=body)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ServerError(f"no answer ({error or type(error).__name__})", passing=True) from error
        status, asked = response.status_code, response.headers.get("retry-after", "")
        if response.is_success:
            return _json(response)
        wait = float(asked) if asked.isdigit() else None
        raise ServerError(f"HTTP {status}: {_message(response)}", status, passing=status in _PASSING, wait=wait)


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
