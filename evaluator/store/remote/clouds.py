"""The supported clouds: URL schemes, credentials and endpoints.

obstore reads credentials as each cloud's own tools do (AWS_ACCESS_KEY_ID and the like, a key file, a role of the machine or
pod); `credentials` adds others.
"""

import functools
import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from evaluator.store.remote.credentials import CONNECTION_STRING, credential_options
from evaluator_serving.errors import InputError


@dataclass(frozen=True, slots=True)
class Cloud:
    """Properties of one cloud's storage.

    Attributes:
        spellings: its URL schemes; the first is canonical.
        place: its term for a bucket.
        credentials: description of the credentials, for messages.
        address: description of what determines the server, for messages.
        endpoints: environment variables for another server, in order of precedence.
        allows_http: the variable that allows plain HTTP to another machine.
    """

    spellings: tuple[str, ...]
    place: str
    credentials: str
    address: str
    endpoints: tuple[str, ...]
    allows_http: str


CLOUDS = (
    Cloud(
        spellings=("s3", "s3a", "s3n"),
        place="bucket",
        credentials="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile, with boto3), AWS_REGION, and for another "
        "vendor's storage AWS_ENDPOINT_URL",
        address="the endpoint",
        endpoints=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        allows_http="AWS_ALLOW_HTTP",
    ),
    Cloud(
        spellings=("gs", "gcs"),
        place="bucket",
        credentials="GOOGLE_APPLICATION_CREDENTIALS (a key file of a service account, a user or, with google-auth, a federated "
        "account), the credentials of `gcloud auth application-default login`, or the machine's account",
        address="the endpoint",
        endpoints=("GOOGLE_BASE_URL",),
        allows_http="GOOGLE_ALLOW_HTTP",
    ),
    Cloud(
        spellings=("az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs"),
        place="container",
        credentials="AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or "
        "AZURE_STORAGE_SAS_TOKEN, AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, AZURE_USE_AZURE_CLI=true, or the "
        "machine's identity",
        address="AZURE_STORAGE_ACCOUNT_NAME",
        endpoints=("AZURITE_BLOB_STORAGE_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        allows_http="AZURE_ALLOW_HTTP",
    ),
)
WRITE = "s3://BUCKET/RUN, gs://BUCKET/RUN or az://CONTAINER/RUN"
_ACCOUNT = re.compile(r"[a-z0-9]+\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com)")
_NONE = ("169.254.", "metadata.google.internal", "MissingAccount", "Account must be specified", "Azure Cli", "federated token")
"""In errors where nothing was set and the machine has no service that gives credentials out, or what was set isn't there."""
_REFUSED = ("token request", "/latest/api/token")
"""In errors where the service that gives credentials out has answered, and with none."""


def cloud_of(scheme: str) -> Cloud:
    """The cloud of a URL scheme. Raises InputError if there is none."""
    found = next((cloud for cloud in CLOUDS if scheme in cloud.spellings), None)
    if found is None:
        raise InputError(f"runs can't be stored at {scheme}://: use {WRITE}, or a folder")
    return found


def checked_url(scheme: str, rest: str) -> str:
    """The URL in canonical form. Raises InputError for other URLs, and for URLs with credentials (which are not shown)."""
    cloud = cloud_of(scheme)
    place, question, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    user, at, bucket = host.rpartition("@")
    account = bool(at) and cloud.place == "container" and ":" not in user
    if question or "#" in place or (at and not account):
        bare = f"{scheme}://{bucket}{slash}{path}".partition("#")[0]
        raise InputError(f"the URL {bare} contains credentials or parameters: remove them; {credentials_hint(cloud)}")
    if account and not (user and _ACCOUNT.fullmatch(bucket)):
        written = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/RUN, or az://CONTAINER/RUN"
        raise InputError(f"{scheme}://{host} does not name a container and an Azure account: write {written}")
    if not bucket:
        raise InputError(f"{scheme}://{place} does not name a bucket: write {scheme}://{cloud.place.upper()}/RUN")
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts) or not place.isprintable():
        raise InputError(f"{scheme}://{place!r} is not a valid URL of a run: remove . and .. and unprintable characters")
    return f"{'abfss' if account else cloud.spellings[0]}://{'/'.join([host, *parts])}"


def check_no_url(text: str) -> None:
    """Raise InputError for a path that is a URL without slashes (s3:bucket/run)."""
    scheme, colon, _ = text.partition(":")
    if colon and any(scheme.lower() in cloud.spellings for cloud in CLOUDS):
        raise InputError(f"{text} is ambiguous: write {WRITE} for a URL, or ./{text} for a folder")


def credentials_hint(cloud: Cloud) -> str:
    """The end of a message that describes the credentials."""
    return f"credentials come from the environment: {cloud.credentials}"


def lacks_credentials(text: str, *, answered: bool) -> bool:
    """Whether obstore's error means missing credentials. `answered`: a server has responded to the failed request."""
    return any(sign in text for sign in (*_NONE, *(_REFUSED if answered else ())))


def open_stores(url: str) -> Callable[[float], Any]:
    """obstore's stores for a URL, by the seconds for which they retry a request.

    Raises InputError if obstore is not installed or configuration is missing.
    """
    if importlib.util.find_spec("obstore") is None:
        raise InputError(f'{url}: runs on object storage need obstore: pip install "stereotype-evaluator[cloud]"')
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    cloud = cloud_of(urlsplit(url).scheme)
    client: dict[str, Any] = {"timeout": "30s", "connect_timeout": "5s"}
    options: dict[str, Any] = {"client_options": client, **credential_options(cloud.spellings[0], url)}
    if _plain(cloud, url, options.get("config", {}).get("endpoint", "")):
        client["allow_http"] = True
    backoff: Any = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2}

    @functools.cache
    def store(seconds: float) -> Any:
        limit = timedelta(seconds=seconds)
        return from_url(url, retry_config={"max_retries": 10**6, "retry_timeout": limit, "backoff": backoff}, **options)

    try:
        store(0)
        return store
    except BaseError as error:
        if lacks_credentials(str(error), answered=False):
            raise InputError(f"no credentials for {url} were found: {credentials_hint(cloud)}") from error
        reason = cause(str(error))
        if "did not match any known pattern" in reason:
            raise InputError(f"{url} is not a valid {cloud.place} name: check the spelling") from error
        raise InputError(
            f"the credentials for {url} can't be used ({reason}): check them; {credentials_hint(cloud)}"
        ) from error


def cause(text: str) -> str:
    """The cause of an error below HTTP, in a few words."""
    head = re.sub(r"^Generic \w+ error: ", "", text.partition("\n")[0])
    deeper = re.findall(r'(?:message|error|source): "([^"]{3,100})"', text)
    return str(deeper[-1] if deeper else head.rpartition(" - ")[2] or head)[:120]


def _plain(cloud: Cloud, url: str, said: str) -> bool:
    """Whether the server uses plain HTTP, which is allowed for localhost and on request.

    `said`: the server in a connection string, if any.
    """
    name = CONNECTION_STRING if said else next((name for name in cloud.endpoints if os.environ.get(name)), "")
    if not name:
        return False
    try:
        endpoint = urlsplit(said or os.environ[name])
        host, _ = endpoint.hostname, endpoint.port
    except ValueError:
        host = None
    if not host or endpoint.scheme not in ("http", "https"):
        what = f"the endpoint in {name}" if said else name
        raise InputError(f"{what} is not a server address: write https://HOST or http://127.0.0.1:PORT")
    if endpoint.scheme == "https":
        return False
    if host in ("localhost", "127.0.0.1", "::1") or os.environ.get(cloud.allows_http, "").lower() in ("1", "true"):
        return True
    remedy = f"use https, or set {cloud.allows_http}=true"
    raise InputError(f"{url}: the endpoint {host} uses plain HTTP, which is not encrypted: {remedy}")
