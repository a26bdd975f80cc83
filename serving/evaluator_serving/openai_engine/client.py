"""A JSON client for servers that may be busy or restarting, with retries and exponential back-off."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_any,
    stop_when_event_set,
    wait_exponential,
    wait_random_exponential,
)

from evaluator_serving.errors import InputError
from evaluator_serving.network import authorities, certificate_remedy, is_loopback, passes, proxy_for
from evaluator_serving.openai_engine.pace import Pace, asked_wait, exhausted
from evaluator_serving.secrets import keep_secret, redacted

_SHOWN = 300
"""Characters of what a server says that a message shows."""
_LONGEST_WAIT = 30.0
_OF_ALL = (404, 405, 407, 413, 422, 429)
"""Statuses of the URL, a field, or too many requests. A server says 413 and 422 of one request, too: then there is no use in
asking whether it answers others."""
_LONGEST_ASKED = 300.0
"""Seconds that a server may ask to wait; what wants more (a day's quota, say) is told instead."""


class ServerError(Exception):
    """A request that failed.

    Attributes:
        status: HTTP status, None if the server could not be reached.
        passing: whether a retry may succeed.
        wait: seconds that the server asks to wait.
        perhaps_done: whether the server may have processed the request.
        general: whether all requests would fail: the command or the server's configuration is wrong.
        whole: the server's complete message in one line; the exception's message is shortened.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        *,
        passing: bool = False,
        wait: float | None = None,
        perhaps_done: bool = False,
        general: bool = False,
        whole: str = "",
    ) -> None:
        super().__init__(message)
        self.perhaps_done = perhaps_done
        self.general = general
        self.whole = whole or message
        self.status = status
        self.passing = passing
        self.wait = wait

    @property
    def of_one(self) -> bool:
        """Whether the request itself may be the cause, if the server answers others: it was reached, and set no limit.

        Status 403, 451 and others mean with some servers that a filter rejected this request, with others that all are
        rejected.
        """
        if self.status is None:
            return self.passing and self.perhaps_done
        return (self.passing and self.status != 429) or (self.status >= 403 and self.status not in _OF_ALL)


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits for retries.

    Attributes:
        retries: attempts after the first.
        timeout: seconds to wait for a response.
        first_wait: seconds before the first retry, doubled for each further one up to half a minute.
    """

    retries: int = 6
    timeout: float = 600.0
    first_wait: float = 0.5

    def retrying(self, given_up: Event | None = None) -> Retrying:
        """Calls a function until it raises no transient ServerError; raises the last one after all retries, or when stopped."""
        # Half of a wait is chance, so that clients that failed together don't come back together.
        half = {"multiplier": self.first_wait / 2, "max": _LONGEST_WAIT / 2}
        spread = wait_exponential(**half) + wait_random_exponential(**half)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.wait if isinstance(error, ServerError) else None
            return spread(state) if asked is None else asked

        return Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ServerError) and error.passing),
            stop=stop_any(stop_after_attempt(self.retries + 1), *([stop_when_event_set(given_up)] if given_up else [])),
            wait=wait,
            sleep=time.sleep,
            reraise=True,
        )


class Client:
    """JSON over HTTP below a base URL. Thread-safe.

    `key_name`: the environment variable of the key, for messages. `headers`: custom headers with the variables of their
    values. Raises InputError for a header that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        connections: int,
        patience: Patience,
        key_name: str = "OPENAI_API_KEY",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        base, query = urlunsplit(parts._replace(query="")).rstrip("/") + "/", dict(parse_qsl(parts.query))
        # Azure's classic URLs, which name a version of the API, take a key in a header of their own.
        sent = {"api-key" if query else "Authorization": (key if query else f"Bearer {key}", key_name)} if key else {}
        for name, variable in (headers or {}).items():
            if (value := os.environ.get(variable)) is None:
                raise InputError(f"header {name}: the environment variable {variable} is not set")
            sent = {given: pair for given, pair in sent.items() if given.lower() != name.lower()} | {name: (value, variable)}
        for value, variable in sent.values():
            keep_secret(variable)
            if not (value.isascii() and value.isprintable()):
                raise InputError(f"{variable} contains characters that are not allowed in a header: correct it")
            _check_secret(url, variable)
        self.url, self.key_name = url, key_name
        self._pace = Pace()
        self._patience = patience
        proxy = proxy_for(base)
        self._proxy = re.sub("//.*@", "//[secret]@", proxy) if proxy else None
        try:
            self._http = httpx.Client(
                base_url=base,
                params=query,
                headers={name: value for name, (value, _) in sent.items()},
                timeout=httpx.Timeout(patience.timeout, connect=10.0),
                limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
                trust_env=False,  # what the environment says is read above: a proxy never stands before this machine
                proxy=proxy,
                verify=authorities(),
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:  # SOCKS needs a package; other schemes there are none
            remedy = (
                "pip install 'httpx[socks]'" if isinstance(error, ImportError) else "correct HTTPS_PROXY, HTTP_PROXY, ALL_PROXY"
            )
            raise InputError(f"the proxy {self._proxy} can't be used: {remedy}") from error

    def get(self, path: str) -> Any:
        """The JSON at `path`. Raises ServerError."""
        return self._patience.retrying()(self.ask, "GET", path)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON response to one request, sent when the server's rate limit allows it. Raises ServerError."""
        self._pace.wait()
        try:
            response = self._http.request(method, path, json=body)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            unsent = isinstance(
                error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.InvalidURL | httpx.ProxyError
            )
            through = f" through the proxy {self._proxy}" if self._proxy else ""
            name = redacted(f"no answer{through} ({error or type(error).__name__})")
            remedy = _remedy(error)
            raise ServerError(name + remedy, passing=not remedy, perhaps_done=not unsent, general=bool(remedy)) from error
        status = response.status_code
        if response.is_success:
            if (rest := exhausted(response.headers)) is not None and rest <= _LONGEST_ASKED:
                self._pace.hold(rest)
            return _json(response)
        whole, wait = _whole_message(response), asked_wait(response.headers)
        message = whole[:_SHOWN]
        passing = passes(status) and "insufficient_quota" not in whole
        if wait is not None and wait > _LONGEST_ASKED:
            passing, message = False, f"{message} (it asks to wait {wait:,.0f} s)"
        elif passing and wait is not None:
            self._pace.hold(wait)  # the other threads needn't find out for themselves
        raise ServerError(f"HTTP {status}: {message}", status, passing=passing, wait=wait, whole=whole)


def _check_secret(url: str, variable: str) -> None:
    """Raise InputError if a key would be sent unencrypted over the network."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        raise InputError(f"{url} is plain HTTP, over which {variable} isn't sent: use https://, or remove {variable}")


def _remedy(error: Exception) -> str:
    """The remedy for a permanent connection failure; empty for others."""
    if isinstance(error, httpx.ProxyError) and str(error).startswith("407"):
        return ": HTTPS_PROXY has to hold the proxy's user and password, as a URL does"
    return certificate_remedy(error)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        # What calls itself JSON was cut short on its way; what doesn't is no such server.
        kind = response.headers.get("content-type", "")
        cut = "json" in kind
        message = f"the answer from {response.url} is not JSON"
        if "html" in kind:
            message += " but a web page: correct the URL, or log in to the proxy in front of the server"
        elif "event-stream" in kind:
            message += " but a stream: turn streaming off at the server"
        raise ServerError(message, response.status_code, passing=cut, perhaps_done=True, general=not cut) from error


def _whole_message(response: httpx.Response) -> str:
    """The server's error message in one line, with its code and without the key."""
    try:
        text = _error(response.json())
    except (ValueError, KeyError, TypeError, AttributeError):
        text = response.text
    return _line(text)


def told_error(answer: Any) -> str:
    """The error in a response, or a part of one, with a success status; empty if there is none."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not error:
        return ""
    try:
        return _line(_error(answer))[:_SHOWN]
    except (KeyError, TypeError, AttributeError):
        return _line(str(error))[:_SHOWN]


def _error(answer: Any) -> str:
    error = answer["error"]
    code = error.get("code")
    return f"{error['message']} [{code}]" if isinstance(code, str) and code not in error["message"] else str(error["message"])


def _line(text: str) -> str:
    return redacted(" ".join(text.split()))  # before it is cut: a part of a key is not known as one
