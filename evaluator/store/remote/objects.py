"""Objects below a URL: get, list, remove, conditional put. obstore retries what it can; this module completes it."""

import contextlib
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from evaluator.store.errors import StoreError
from evaluator.store.remote.clouds import cause, cloud_of, credentials_hint, lacks_credentials, open_stores
from evaluator_serving.errors import InputError, NotNowError

Value = TypeVar("Value")
Version = Mapping[str, str]
"""What an object is known by as it is now: `e_tag`, and a `version` where the cloud has one."""

START, WORK = 30.0, 600.0
"""Seconds of trying again: while a command begins, and while a run has something to lose."""
_BRIEF = 2.0
"""Seconds of retrying that are not reported."""
_RESPONSE = re.compile(r"status code: (\d{3}) ?([A-Za-z ]*)(?:.*?<Code>(\w+)</Code>)?", re.DOTALL)
"""Status and code of a response, which obstore's exceptions have in their text only. Errors show nothing else of a response,
because it may repeat a header with a secret."""
_DENIED = re.compile(
    r"credential provider: "
    r"(?:OAuthError|RefreshError|ClientError|\w*Token\w*Error|\w*CredentialsError|CredentialRetrievalError): "
    r"\(?['\"]?([^'\"\n]{3,120})"
)
"""What google-auth and boto3 say where credentials are no good (a sign-on that has expired); what else they say may pass."""


class RemoteError(StoreError, InputError):
    """The storage at a URL cannot be used: one line with the reason and a remedy."""

    def __str__(self) -> str:
        """The line."""
        return str(self.args[0])


class UnreachedError(RemoteError, NotNowError):
    """The storage cannot be used at the moment; the same command may succeed later."""


class ConflictError(Exception):
    """The object was changed by another writer."""


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
        self._store = open_stores(url)
        """By the seconds for which obstore retries."""
        self._answered = False

    def get(self, name: str, *, patience: float = START) -> Object | None:
        """An object, None if it does not exist."""
        return self._tried(lambda store: _get(store, name), patience)

    def listing(self, *, first: bool = False) -> dict[str, int]:
        """Names and sizes of all objects, or of the `first` few, without empty objects (folder markers of consoles and
        mounts)."""
        import obstore

        def ask(store: Any) -> dict[str, int]:
            found: dict[str, int] = {}
            for page in obstore.list(store):
                found |= {meta["path"]: meta["size"] for meta in page if meta["size"]}
                if first:
                    break
            return found

        return self._tried(ask, START)

    def put(self, name: str, content: bytes, known: Version | None, *, patience: float = WORK) -> Version:
        """Replace the object with version `known`, or create it if that is None. Returns its version.

        Raises ConflictError for another version. A lost response, after which the repeated request finds its own object, is
        resolved by reading the content.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: Any = dict(known) if known else "create"

        def ask(store: Any) -> Version:
            try:
                return _version(obstore.put(store, name, content, mode=condition))
            except (AlreadyExistsError, PreconditionError) as error:
                now = _get(store, name)
                if now is not None and now.content == content:
                    return now.version
                if (now.version if now else None) == known:  # two requests met, and neither was done
                    raise
                raise ConflictError(name) from error

        return self._tried(ask, patience)

    def overwrite(self, name: str, content: bytes, *, patience: float) -> None:
        """Put unconditionally, for objects with a single writer."""
        import obstore

        self._tried(lambda store: obstore.put(store, name, content), patience)

    def keeps_conditions(self, name: str) -> bool:
        """Whether the storage rejects a put that must not replace the existing object `name`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def ask(store: Any) -> bool:
            try:
                obstore.put(store, name, b"{}", mode="create")
            except (AlreadyExistsError, PreconditionError):
                return True
            return False

        return self._tried(ask, START)

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        import obstore

        def ask(store: Any) -> None:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(store, name)

        self._tried(ask, WORK)

    def _tried(self, call: Callable[[Any], Value], patience: float) -> Value:
        """The result of the call with a store that retries for `patience` seconds.

        The loop adds what obstore does not do. It neither reports that it retries nor retries a conditional PUT that timed
        out (`put` resolves that), a listing that breaks off, 408 and 425, and credentials that a provider cannot renew.
        """
        from obstore.exceptions import BaseError

        # Missing credentials show at the first attempt: it is not repeated before some request has been answered.
        begun, seconds, pause = time.monotonic(), min(_BRIEF, patience) if self._answered else 0.0, 0.2
        while True:
            try:
                value = call(self._store(seconds))
                self._answered = True
                return value
            except (BaseError, FileNotFoundError) as error:
                failure, elapsed = self._failure(error), time.monotonic() - begun
                if elapsed >= patience or not isinstance(failure, UnreachedError):
                    raise failure from error
                seconds = max(0.0, round(min(_BRIEF, patience) - elapsed - pause, 1))
                if elapsed >= _BRIEF:
                    warnings.warn(f"{self.url} fails ({_reason(error)}): retrying for up to {patience:.0f} s", stacklevel=2)
                    seconds = patience
            time.sleep(pause)
            pause = min(2 * pause, 10.0)

    def _failure(self, error: Exception) -> RemoteError:
        """What a request's error means: UnreachedError if it may succeed later.

        The exception's class decides where obstore has one. A listing's refusals, credentials and regions are GenericError.
        """
        from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError, UnauthenticatedError

        text, reason = str(error), _reason(error)
        response = _RESPONSE.search(text)
        status = int(response[1]) if response else 0
        if (denied := _DENIED.search(text)) and not self._answered:
            return RemoteError(
                f"the credentials for {self.url} are refused ({denied[1]}): check them; {credentials_hint(self._cloud)}"
            )
        if lacks_credentials(text, answered=bool(status)):
            if not self._answered:
                return RemoteError(f"no credentials for {self.url} were found ({reason}): {credentials_hint(self._cloud)}")
            reason = f"no new credentials: {reason}"  # there were some before
        elif isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
            rights = "the credentials need the right to list, read and write"
            return RemoteError(f"{self.url} refuses access ({reason}): {rights}; {credentials_hint(self._cloud)}")
        elif isinstance(error, FileNotFoundError) or status == 404:
            missing = f"there is no such {self._cloud.place} ({reason})"
            return RemoteError(f"{self.url}: {missing}: make it first, or check its name and the endpoint")
        elif "redirect without LOCATION" in text:
            return RemoteError(f"{self.url} is in another region: set AWS_REGION to the bucket's")
        elif (
            status in range(300, 500)
            and status not in (408, 425, 429)
            and not isinstance(error, AlreadyExistsError | PreconditionError)
        ):
            remedy = f"check the {self._cloud.place}'s name, region and endpoint"
            return RemoteError(f"{self.url} refuses a request ({reason}): {remedy}")
        return UnreachedError(
            f"{self.url} can't be reached ({reason}): check the network and {self._cloud.address}; "
            "finished work is kept: run the same command again to resume"
        )


def _reason(error: Exception) -> str:
    """An obstore error in a few words."""
    response = _RESPONSE.search(str(error))
    return f"HTTP {response[1]} {response[3] or response[2]}".rstrip() if response else cause(str(error))


def _get(store: Any, name: str) -> Object | None:
    import obstore

    try:
        found = obstore.get(store, name)
    except FileNotFoundError:  # where the bucket is missing, every listing and PUT says so
        return None
    return Object(bytes(found.bytes()), _version(found.meta))


def _version(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key)}
