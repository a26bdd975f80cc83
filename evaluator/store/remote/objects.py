"""Objects below one URL: get, list, remove, and put on condition. Requests that fail in passing are made again.

obstore reads credentials as each cloud's own tools do: AWS_ACCESS_KEY_ID and the like, a role of the machine or pod; where
boto3 is installed also profiles of ~/.aws. Its own retries are off: whether to try again is decided here alone.
"""

import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential, wait_random

from evaluator.store.errors import StoreError
from evaluator_serving.errors import InputError

Value = TypeVar("Value")
Version = Mapping[str, str]
"""What an object is known by as it is now: `e_tag`, and a `version` where the cloud has one."""

CLOUDS = {
    "s3": "s3", "s3a": "s3", "gs": "gs",
    "az": "az", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az",
}  # fmt: skip
"""Scheme → cloud."""
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile, with boto3), AWS_REGION, and for another vendor's "
    "storage AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
START, WORK = 30.0, 600.0
"""Seconds of trying again: while a command begins, and while a run has something to lose."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]*))?")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "MissingAccount", "Account must be specified")


class RemoteError(StoreError, InputError):
    """The storage at a URL can't be used as it is: one line that says why and what to do."""

    def __str__(self) -> str:
        """The line."""
        return str(self.args[0])


class ConflictError(Exception):
    """The object is another one than was expected: somebody else has written it."""


class _PassingError(Exception):
    """A request that may succeed a little later."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object's content and version."""

    content: bytes
    version: Version


def checked_url(scheme: str, rest: str) -> str:
    """The URL in one spelling. Raises InputError for what isn't object storage, and for credentials in it (not shown)."""
    if scheme not in CLOUDS:
        known = "s3://BUCKET/RUN, gs://BUCKET/RUN or az://CONTAINER/RUN"
        raise InputError(f"{scheme}:// is no storage that runs can be kept in: use {known}, or a folder")
    place, question, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    user, at, bucket = host.rpartition("@")
    if question or "#" in place or (at and (":" in user or scheme not in ("abfs", "abfss"))):
        bare = f"{scheme}://{bucket}{slash}{path}".partition("#")[0]
        raise InputError(f"the URL {bare} is given with credentials or parameters: leave them out; {_named(scheme)}")
    if not bucket:
        raise InputError(f"{scheme}://{place} names no bucket: write {scheme}://BUCKET/RUN")
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts) or not place.isprintable():
        raise InputError(f"{scheme}://{place!r} is no place for a run: leave . and .. and unprintable characters out")
    return f"{scheme}://{'/'.join([host, *parts])}"


def _named(scheme: str) -> str:
    return f"credentials come from the environment: {CREDENTIALS[CLOUDS[scheme]]}"


class Objects:
    """The objects below a URL. Methods raise RemoteError for what trying again doesn't mend, or didn't within `patience`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = _store(url)

    def get(self, name: str, *, patience: float = START) -> Object | None:
        """An object, None where there is none."""
        return self._tried(lambda: self._get(name), patience)

    def _get(self, name: str) -> Object | None:
        import obstore

        try:
            found = obstore.get(self._store, name)
            return Object(bytes(found.bytes()), _version(found.meta))
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise
            return None

    def listing(self, *, first: bool = False) -> dict[str, int]:
        """Names and sizes of all objects, or of the `first` thousand or so."""
        import obstore

        def ask() -> dict[str, int]:
            found: dict[str, int] = {}
            for page in obstore.list(self._store):
                found |= {meta["path"]: meta["size"] for meta in page}
                if first:
                    break
            return found

        return self._tried(ask, START)

    def put(self, name: str, content: bytes, known: Version | None, *, patience: float = WORK) -> Version:
        """Replace the object whose version is `known`, or make one where there is none. Returns its version.

        Raises ConflictError where there is another object. A response that was lost is made out by asking for the content.
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
        """Put what nobody else cares for."""
        import obstore

        self._tried(lambda: obstore.put(self._store, name, content), patience)

    def keeps_conditions(self, name: str) -> bool:
        """Whether a put that must not replace the existing object `name` is refused, as it has to be."""
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
        """Remove an object if it is there."""
        import obstore

        def ask() -> None:
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise

        self._tried(ask, WORK)

    def _tried(self, call: Callable[[], Value], patience: float) -> Value:
        """What the call gives, tried again while it fails in passing."""
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
            raise RemoteError(
                f"{self.url} can't be reached ({error}): check the network and the endpoint; "
                "what was finished is kept, the same command goes on from there"
            ) from error

    def _tell(self, state: RetryCallState, patience: float) -> None:
        if state.attempt_number == 4 and state.outcome:
            reason = state.outcome.exception()
            warnings.warn(f"{self.url} fails ({reason}): trying again for up to {patience:.0f} s", stacklevel=2)

    def _asked(self, call: Callable[[], Value]) -> Value:
        """One try. What the server says is shown as a status and a code: it may repeat a header."""
        from obstore.exceptions import BaseError

        try:
            return call()
        except (BaseError, FileNotFoundError) as error:
            text = str(error)
            status, code = _STATUS.search(text), _CODE.search(text)
            if status:
                said = f"HTTP {status[1]}" + (f" {code[1] if code else status[2] or ''}").rstrip()
                if int(status[1]) in _PASSING:
                    raise _PassingError(said) from error
                raise RemoteError(self._refused(int(status[1]), said)) from error
            if any(sign in text for sign in _NO_CREDENTIALS):
                raise RemoteError(f"no credentials for {self.url} were found: {self._credentials}") from error
            if "redirect without LOCATION" in text:
                raise RemoteError(f"{self.url} lies in another region: set AWS_REGION to the bucket's") from error
            raise _PassingError(_cause(text)) from error

    def _refused(self, status: int, said: str) -> str:
        if status in (401, 403):
            rights = "the credentials need the right to list, read and write"
            return f"{self.url} refuses access ({said}): {rights}; {self._credentials}"
        if status == 404:
            return f"{self.url}: there is no such bucket ({said}): make it first, or check its name and the endpoint"
        return f"{self.url} refuses a request ({said}): check the bucket's name, region and endpoint"

    @property
    def _credentials(self) -> str:
        return _named(urlsplit(self.url).scheme)


def _cause(text: str) -> str:
    """What went wrong below HTTP, in a few words."""
    head = text.partition("\n")[0]
    deeper = re.findall(r'(?:message|error|source): "([^"]{3,100})"', text)
    return (deeper[-1] if deeper else head.rpartition(" - ")[2] or head)[:120]


def _version(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key)}


def _store(url: str) -> Any:
    """obstore's store of a URL. Raises InputError where it isn't installed or lacks what it needs to begin with."""
    if importlib.util.find_spec("obstore") is None:
        raise InputError(f'{url}: runs on object storage need obstore: pip install "stereotype-evaluator[cloud]"')
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    cloud = CLOUDS[urlsplit(url).scheme]
    client = {"timeout": "30s", "connect_timeout": "5s"}
    options: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": 0}}
    if cloud == "s3":
        if _plain(url):
            client["allow_http"] = True  # type: ignore[assignment]
        if "AWS_ACCESS_KEY_ID" not in os.environ and (provider := _boto_credentials()):
            options["credential_provider"] = provider
    try:
        return from_url(url, **options)
    except BaseError as error:
        if any(sign in str(error) for sign in _NO_CREDENTIALS):
            raise InputError(f"no credentials for {url} were found: {_named(urlsplit(url).scheme)}") from error
        raise InputError(f"{url} can't be used ({_cause(str(error))}): check how it is written") from error


def _plain(url: str) -> bool:
    """Whether the S3 endpoint is plain HTTP, which is for this machine alone, else for those who say so."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = urlsplit(next((os.environ[name] for name in names if os.environ.get(name)), ""))
    if endpoint.scheme != "http":
        return False
    if endpoint.hostname in ("localhost", "127.0.0.1", "::1") or os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"):
        return True
    remedy = "use https, or set AWS_ALLOW_HTTP=true"
    raise InputError(f"{url}: the endpoint {endpoint.hostname} is plain HTTP, on which others can read along: {remedy}")


def _boto_credentials() -> Any:
    """What boto3 finds (profiles, sign-on, roles), None where it isn't installed or finds nothing."""
    if importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:  # no credentials
        return None
