"""Objects below a URL: get, list, remove, conditional put. Transient errors are retried; only this module decides which."""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential, wait_random

from evaluator.store.errors import StoreError
from evaluator.store.remote.clouds import cause, cloud_of, lacks_credentials, named, opened
from evaluator_serving.errors import InputError, NotNowError

Value = TypeVar("Value")
Version = Mapping[str, str]
"""What an object is known by as it is now: `e_tag`, and a `version` where the cloud has one."""

START, WORK = 30.0, 600.0
"""Seconds of trying again: while a command begins, and while a run has something to lose."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]*))?")
_DENIED = re.compile(
    r"credential provider: "
    r"(?:OAuthError|RefreshError|ClientError|\w*Token\w*Error|\w*CredentialsError|CredentialRetrievalError): "
    r"\(?['\"]?([^'\"\n]{3,120})"
)
"""What google-auth and boto3 say where credentials are no good (a sign-on that has expired); what else they say may pass."""
_CODE = re.compile(r"<Code>(\w+)</Code>")


class RemoteError(StoreError, InputError):
    """The storage at a URL cannot be used: one line with the reason and a remedy."""

    def __str__(self) -> str:
        """The line."""
        return str(self.args[0])


class UnreachedError(RemoteError, NotNowError):
    """The storage cannot be used at the moment; the same command may succeed later."""


class ConflictError(Exception):
    """The object was changed by another writer."""


class _PassingError(Exception):
    """A request that may succeed shortly."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's content and version."""

    content: bytes
    version: Version


class Objects:
    """The objects below a URL. Methods raise RemoteError for permanent errors, and for transient ones that outlast
    `patience`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._cloud = cloud_of(urlsplit(url).scheme)
        self._store = opened(url)
        self._answered = False

    def get(self, name: str, *, patience: float = START) -> Object | None:
        """An object, None if it does not exist."""
        return self._tried(lambda: self._get(name), patience)

    def _get(self, name: str) -> Object | None:
        import obstore

        try:
            found = obstore.get(self._store, name)
            return Object(bytes(found.bytes()), _version(found.meta))
        except FileNotFoundError as error:
            if self._cloud.missing in str(error):
                raise
            return None

    def listing(self, *, first: bool = False) -> dict[str, int]:
        """Names and sizes of all objects, or of the `first` few, without empty objects (folder markers of consoles and
        mounts)."""
        import obstore

        def ask() -> dict[str, int]:
            found: dict[str, int] = {}
            for page in obstore.list(self._store):
                found |= {meta["path"]: meta["size"] for meta in page if meta["size"]}
                if first:
                    break
            return found

        return self._tried(ask, START)

    def put(self, name: str, content: bytes, known: Version | None, *, patience: float = WORK) -> Version:
        """Replace the object with version `known`, or create it if that is None. Returns its version.

        Raises ConflictError for another version. A lost response is resolved by reading the content.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: Any = dict(known) if known else "create"

        def ask() -> Version:
            try:
                return _version(obstore.put(self._store, name, content, mode=condition))
            except (AlreadyExistsError, PreconditionError) as error:
                now = self._get(name)
                if now is not None and now.content == content:
                    return now.version
                if (now.version if now else None) == known:  # two requests met: neither was at fault
                    raise _PassingError("two requests met") from error
                raise ConflictError(name) from error

        return self._tried(ask, patience)

    def overwrite(self, name: str, content: bytes, *, patience: float) -> None:
        """Put unconditionally, for objects with a single writer."""
        import obstore

        self._tried(lambda: obstore.put(self._store, name, content), patience)

    def keeps_conditions(self, name: str) -> bool:
        """Whether the storage rejects a put that must not replace the existing object `name`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def ask() -> bool:
            try:
                obstore.put(self._store, name, b"{}", mode="create")
            except (AlreadyExistsError, PreconditionError):
                return True
            return False

        return self._tried(ask, START)

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        import obstore

        def ask() -> None:
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError as error:
                if self._cloud.missing in str(error):
                    raise

        self._tried(ask, WORK)

    def _tried(self, call: Callable[[], Value], patience: float) -> Value:
        """The result of the call, which is retried after transient errors."""
        retrying = Retrying(
            retry=retry_if_exception_type(_PassingError),
            stop=stop_after_delay(patience),
            wait=wait_exponential(multiplier=0.2, max=10) + wait_random(0, 0.3),
            before_sleep=lambda state: self._tell(state, patience),
            reraise=True,
        )
        try:
            value: Value = retrying(self._asked, call)
            return value
        except _PassingError as error:
            raise UnreachedError(
                f"{self.url} can't be reached ({error}): check the network and {self._cloud.address}; "
                "what was finished is kept, the same command goes on from there"
            ) from error

    def _tell(self, state: RetryCallState, patience: float) -> None:
        if state.attempt_number == 4 and state.outcome:
            reason = state.outcome.exception()
            warnings.warn(f"{self.url} fails ({reason}): trying again for up to {patience:.0f} s", stacklevel=2)

    def _asked(self, call: Callable[[], Value]) -> Value:
        """One attempt. Errors show status and code only: a server's message may repeat a header."""
        from obstore.exceptions import BaseError

        try:
            value = call()
        except (BaseError, FileNotFoundError) as error:
            raise self._meaning(str(error)) from error
        self._answered = True
        return value

    def _meaning(self, text: str) -> Exception:
        """What an error's text says: whether to try again, or why not and what to do."""
        status, code = _STATUS.search(text), _CODE.search(text)
        said = f"HTTP {status[1]}" + (f" {code[1] if code else status[2] or ''}").rstrip() if status else cause(text)
        if status and int(status[1]) in _PASSING:
            return _PassingError(said)
        if (denied := _DENIED.search(text)) and not self._answered:
            return RemoteError(f"the credentials for {self.url} are refused ({denied[1]}): check them; {named(self._cloud)}")
        if lacks_credentials(text, answered=bool(status)):
            if self._answered:  # they were there a while ago
                return _PassingError(f"no new credentials: {said}")
            return RemoteError(f"no credentials for {self.url} were found ({said}): {named(self._cloud)}")
        if status:
            return RemoteError(self._refused(int(status[1]), said))
        if "redirect without LOCATION" in text:
            return RemoteError(f"{self.url} lies in another region: set AWS_REGION to the bucket's")
        return _PassingError(said)

    def _refused(self, status: int, said: str) -> str:
        place = self._cloud.place
        if status in (401, 403):
            rights = "the credentials need the right to list, read and write"
            return f"{self.url} refuses access ({said}): {rights}; {named(self._cloud)}"
        if status == 404:
            return f"{self.url}: there is no such {place} ({said}): make it first, or check its name and the endpoint"
        return f"{self.url} refuses a request ({said}): check the {place}'s name, region and endpoint"


def _version(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key)}
