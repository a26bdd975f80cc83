"""Credentials that obstore doesn't read by itself: AWS's profiles and sign-ons, Google's federated accounts, Azure's connection
strings.

The first two are boto3's and google-auth's work, where these are installed.
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


def given(scheme: str, url: str) -> dict[str, Any]:
    """Arguments for obstore's store of a URL, empty where obstore finds by itself what there is.

    Raises InputError for what can't be used.
    """
    if scheme == "s3":
        provider = None if "AWS_ACCESS_KEY_ID" in os.environ else _of_boto(url)
    elif scheme == "gs":
        provider = _of_google(url)
    else:
        return {"config": config} if (config := connection_string(url)) else {}
    return {"credential_provider": provider} if provider else {}


def connection_string(url: str) -> dict[str, str]:
    """What AZURE_STORAGE_CONNECTION_STRING says, by obstore's names; empty where there is none, or an account is named besides.

    Raises InputError for one that is damaged, or of another account than the URL names.
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
        raise InputError(f"{CONNECTION_STRING} names no account, or no key of it: copy it whole ({whole})")
    if "@" in url and _first_label(url) != account:
        raise InputError(f"{url} is in another account than {CONNECTION_STRING}, which is of {account}: change one of the two")
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
    """What boto3 finds (profiles, sign-on, roles), None where it isn't installed or finds nothing."""
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
    """What google-auth makes of a file that obstore can't read, None where there is none."""
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
    logging.getLogger("google.auth").setLevel(logging.ERROR)  # it misses a project, which storage doesn't need
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except (GoogleAuthError, ValueError, OSError) as error:
        raise InputError(f"the credentials for {url} can't be used ({first_line(error)}): check {file}") from error
    return GoogleCredentialProvider(credentials)


def _google_file() -> Path:
    """Where Google's own tools look: what the variable names, else what `gcloud auth application-default login` has left."""
    if named := os.environ.get(_GOOGLE_FILE):
        return Path(named)
    home = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    return Path(home) / "application_default_credentials.json"


def _kind(file: Path) -> str:
    """The type that a file of Google's says it is, empty where it says none."""
    try:
        content = json.loads(file.read_text("utf8"))
    except (OSError, ValueError):
        return ""
    kind = content.get("type") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else ""
