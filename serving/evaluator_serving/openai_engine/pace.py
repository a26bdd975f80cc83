"""The server's rate limit from its headers, shared by all threads."""

import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = 1e9
"""A number of seconds that can only be a date."""


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait that a rejecting server requests, None if it does not."""
    if (wait := _seconds(headers.get("retry-after-ms", ""), 0.001)) is not None:
        return wait
    if (wait := _seconds(headers.get("retry-after", ""))) is not None:
        return wait
    resets = [_seconds(headers.get(f"x-ratelimit-reset{suffix}", "")) for suffix in ("-requests", "-tokens", "")]
    return max((wait for wait in resets if wait is not None), default=None)


def exhausted(headers: Mapping[str, str]) -> float | None:
    """Seconds until an exhausted limit is reset, None if none is exhausted."""
    waits = [
        _seconds(headers.get(f"x-ratelimit-reset{suffix}", ""))
        for suffix in ("-requests", "-tokens", "")
        if headers.get(f"x-ratelimit-remaining{suffix}", "").strip() == "0"
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds(text: str, unit: float = 1.0) -> float | None:
    """`1.5`, `6m0s`, `20ms`, a date of HTTP, a Unix time in seconds or milliseconds."""
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhd])", text)
        if parts and "".join(n + u for n, u in parts) == text:
            return sum(float(n) * _UNITS[u] for n, u in parts)
        try:
            return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            return None
    if number != number or number < 0:
        return None
    if number > _EPOCH:
        return max(0.0, number / (1000.0 if number > 1000 * _EPOCH else 1.0) - time.time())
    return number * unit


class Pace:
    """A time before which no request is sent."""

    def __init__(self) -> None:
        self._until = 0.0
        self._lock = threading.Lock()

    def hold(self, seconds: float) -> None:
        """Send no requests for so many seconds."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)

    def wait(self) -> None:
        """Wait until requests may be sent."""
        with self._lock:
            left = self._until - time.monotonic()
        if left > 0:
            time.sleep(left)
