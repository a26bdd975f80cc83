"""Credentials that obstore does not read: AWS profiles and single sign-on, Google's federated accounts, Azure connection
strings.

The first two are read by boto3 and google-auth if these are installed.
"""

import importlib.util
import json
import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evaluator_serving.errors import InputError, NotNowError, first_line

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
_GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_OBSTORES_OWN = ("service_account", "authorized_user")
"""Types of Google's files that obstore reads; what is wrong with one is its word, too."""
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def credential_options(scheme: str, url: str) -> dict[str, Any]:
    """Arguments for obstore's store of a URL; empty if obstore finds the credentials itself.

    Raises InputError for credentials that cannot be used.
    """
    if scheme == "s3":
        provider = None if "AWS_ACCESS_KEY_ID" in os.environ else _of_boto(url)
    elif scheme == "gs":
        provider = _of_google(url)
    else:
        return {"config": config} if (config := connection_string(url)) else {}
    return {"credential_provider": provider} if provider else {}


def connection_string(url: str) -> dict[str, str]:
    """AZURE_STORAGE_CONNECTION_STRING in obstore's terms; empty if it is not set, or an account is also named.

    Raises InputError if it is damaged, or for another account than the URL.
    """
    text = os.environ.get(CONNECTION_STRING, "")
    if not text or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        return {}
    parts = {name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in text.split(";"))}
    endpoint = parts.get("blobendpoint", "").rstrip("/")
    account = parts.get("accountname", "") or _first_label(endpoint)
    key, signature = parts.get("accountkey", ""), parts.get("sharedaccesssignature", "").removeprefix("?")
    if not account or not (key or signature):
        whole = "AccountName=…;AccountKey=…, or BlobEndpoint=…;SharedAccessSignature=…"
        raise InputError(f"{CONNECTION_STRING} lacks the account or its key: copy it completely ({whole})")
    if "@" in url and _first_label(url) != account:
        raise InputError(f"{url} and {CONNECTION_STRING} (account {account}) are for different accounts: change one of them")
    if not endpoint and (suffix := parts.get("endpointsuffix")):
        endpoint = f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.blob.{suffix}"
    secret = {"account_key": key} if key else {"sas_key": signature}
    return {"account_name": account, **secret, **({"endpoint": endpoint} if endpoint else {})}


def _first_label(address: str) -> str:
    """`account` of https://account.blob.core.windows.net or abfss://container@account.dfs.core.windows.net."""
    try:
        return (urlsplit(address).hostname or "").partition(".")[0]
    except ValueError:
        return ""


def _of_boto(url: str) -> Any:
    """The credentials that boto3 finds (profiles, single sign-on, roles), None if it is not installed or finds none."""
    if importlib.util.find_spec("boto3") is None:
        return None
    from botocore.exceptions import BotoCoreError, HTTPClientError, MetadataRetrievalError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:  # no credentials
        return None
    except BotoCoreError as error:
        kind = NotNowError if isinstance(error, HTTPClientError | MetadataRetrievalError) else InputError
        remedy = "check AWS_PROFILE and ~/.aws, or sign on again (aws sso login)"
        raise kind(f"the credentials for {url} can't be used ({first_line(error)}): {remedy}") from error


def _of_google(url: str) -> Any:
    """The credentials in a file that only google-auth can read, None if there is none."""
    file = _google_file()
    kind = _kind(file)
    if kind in ("", *_OBSTORES_OWN):
        return None
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from obstore.auth.google import GoogleCredentialProvider
    except ImportError as error:
        needs = "need google-auth: pip install google-auth requests"
        raise InputError(f"{url}: credentials of the type {kind} ({file}) {needs}") from error
    logging.getLogger("google.auth").setLevel(logging.ERROR)  # it warns about a missing project, which storage does not need
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except (GoogleAuthError, ValueError, OSError) as error:
        raise InputError(f"the credentials for {url} can't be used ({first_line(error)}): check {file}") from error
    return GoogleCredentialProvider(credentials)


def _google_file() -> Path:
    """The credentials file by Google's rules: the environment variable, else that of `gcloud auth application-default
    login`."""
    if named := os.environ.get(_GOOGLE_FILE):
        return Path(named)
    home = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    return Path(home) / "application_default_credentials.json"


def _kind(file: Path) -> str:
    """The type in a Google credentials file, empty if it has none."""
    try:
        content = json.loads(file.read_text("utf8"))
    except (OSError, ValueError):
        return ""
    kind = content.get("type") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else ""
