"""Credentials of object storage that obstore doesn't read by itself: what the storage is sent, and what is wrong in a line."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from object_servers import ACCOUNT, ACCOUNT_KEY, BUCKET, az_server, azurite

from evaluator.store.remote import clouds
from evaluator.store.remote.credentials import CONNECTION_STRING, connection_string
from evaluator.store.remote.objects import Objects
from evaluator_serving.errors import InputError, NotNowError
from evaluator_serving.secrets import redacted
from tests.local_server import Handler, LocalServer

pytest.importorskip("obstore")

KEY = "c2VjcmV0LXNlY3JldA=="


class Storage(Handler):
    """Has no object, and gives tokens out; writes down what it is asked."""

    asked: list[tuple[str, str, str]]
    refuses = False

    def do_GET(self) -> None:
        self.tell(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_POST(self) -> None:
        kinds = {"access_token": "federated-token", "issued_token_type": "urn:x", "token_type": "Bearer", "expires_in": 3600}
        told = {"error": "invalid_grant", "error_description": "no such pool"} if self.refuses else kinds
        self.tell(400 if self.refuses else 200, told)

    def tell(self, status: int, content: Any) -> None:
        self.asked.append((self.path, self.headers.get("authorization", ""), self.body().decode()))
        self.answer(status, content)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[type[Storage], str]]:
    """A storage of its own and its address, and nothing in the environment that says of any."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "AZURITE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    handler = type("Own", (Storage,), {"asked": []})
    with LocalServer(handler) as server:
        yield handler, server.url


def federated(folder: Path, storage: str) -> dict[str, Any]:
    """What a file of workload identity federation holds; the token that it begins with is in a file."""
    (folder / "subject").write_text("subject-token")
    kind = "urn:ietf:params:oauth:token-type:jwt"
    source = {"file": str(folder / "subject")}
    return {
        "type": "external_account",
        "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": kind,
        "token_url": f"{storage}/token",
        "credential_source": source,
    }


@pytest.mark.parametrize("how", ["named", "left by gcloud"])
def test_a_federated_account_of_google(
    storage: tuple[type[Storage], str], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth", reason="google-auth isn't installed")
    server, address = storage
    file = tmp_path / "gcloud" / "application_default_credentials.json"
    file.parent.mkdir()
    if how == "named":
        file = tmp_path / "federated.json"
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    file.write_text(json.dumps(federated(tmp_path, address)))
    monkeypatch.setenv("GOOGLE_BASE_URL", address)
    assert Objects(f"gs://{BUCKET}/run").get("run.json") is None
    (token, _, body), (path, authorization, _) = server.asked
    assert token == "/token"
    assert "subject_token=subject-token" in body
    assert "devstorage.read_write" in body
    assert (unquote(path), authorization) == (f"/{BUCKET}/run/run.json", "Bearer federated-token")


def test_a_federated_account_that_is_refused_or_cannot_be_read_is_one_line(
    storage: tuple[type[Storage], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth", reason="google-auth isn't installed")
    server, address = storage
    monkeypatch.setenv("GOOGLE_BASE_URL", address)
    file = tmp_path / "federated.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    file.write_text(json.dumps(federated(tmp_path, address)))
    server.refuses = True
    with pytest.raises(InputError, match=rf"the credentials for gs://{BUCKET}/run are refused .*no such pool.: check them"):
        Objects(f"gs://{BUCKET}/run").get("run.json")
    assert len(server.asked) == 1, "it wasn't tried again"
    file.write_text(json.dumps({"type": "external_account"}))
    with pytest.raises(InputError, match=rf"the credentials for gs://{BUCKET}/run can't be used .*: check {file}"):
        Objects(f"gs://{BUCKET}/run")
    monkeypatch.setitem(__import__("sys").modules, "google.auth", None)
    with pytest.raises(InputError, match=r"of the type external_account .* need google-auth: pip install google-auth requests"):
        Objects(f"gs://{BUCKET}/run")


PROFILES = """
[profile sso]
sso_session = corp
sso_account_id = 111122223333
sso_role_name = reader
region = us-east-1
[sso-session corp]
sso_start_url = https://corp.example.com/start
sso_region = us-east-1
[profile role]
role_arn = arn:aws:iam::1:role/x
source_profile = none
[profile program]
credential_process = false
"""


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("none", r"can't be used \(The config profile \(none\) could not be found\): check AWS_PROFILE"),
        ("role", r"can't be used \(.*\"none\" .* does not exist.*sign on again"),
        ("program", r"can't be used \(Error when retrieving credentials from custom-process.*check AWS_PROFILE"),
        ("sso", r"are refused \(Error loading SSO Token: Token for corp does not exist"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line_at_once(
    profile: str, said: str, storage: tuple[type[Storage], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    server, address = storage
    (tmp_path / "config").write_text(PROFILES)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {"CONFIG_FILE": tmp_path / "config", "PROFILE": profile, "ENDPOINT_URL": address}.items():
        monkeypatch.setenv(f"AWS_{name}", str(value))
    with pytest.raises(InputError, match=f"the credentials for s3://{BUCKET}/run {said}") as raised:
        Objects(f"s3://{BUCKET}/run").get("run.json", patience=0)
    assert not isinstance(raised.value, NotNowError)
    assert "\n" not in str(raised.value)
    assert server.asked == []


def test_a_connection_string_is_what_the_storage_is_asked_with(
    storage: tuple[type[Storage], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = storage
    monkeypatch.setenv(CONNECTION_STRING, f"AccountName=team;AccountKey={KEY};BlobEndpoint={address}/team;")
    Objects(f"az://{BUCKET}/run").get("run.json")
    monkeypatch.setenv(CONNECTION_STRING, f"BlobEndpoint={address}/team;SharedAccessSignature=?sv=2024&sig=a%2Bb%3D")
    Objects(f"az://{BUCKET}/run").get("run.json")
    (path, authorization, _), (signed, _, _) = server.asked
    assert path == f"/team/{BUCKET}/run/run.json"
    assert authorization.startswith("SharedKey team:")
    assert signed.partition("?")[0] == path
    assert "sig=a%2Bb%3D" in signed


def test_what_a_connection_string_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    url = f"az://{BUCKET}/run"
    for text, found in {
        f"DefaultEndpointsProtocol=https;AccountName=team;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn": {
            "account_name": "team",
            "account_key": KEY,
            "endpoint": "https://team.blob.core.chinacloudapi.cn",
        },
        "BlobEndpoint=https://team.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x": {
            "account_name": "team",
            "sas_key": "sv=1&sig=x",
            "endpoint": "https://team.blob.core.windows.net",
        },
    }.items():
        monkeypatch.setenv(CONNECTION_STRING, text)
        assert connection_string(url) == found
        assert connection_string(f"abfss://{BUCKET}@team.dfs.core.windows.net/run") == found
        assert KEY not in redacted(f"said {text}")
        with pytest.raises(InputError, match=r"and AZURE_STORAGE_CONNECTION_STRING \(account team"):
            connection_string(f"abfss://{BUCKET}@other.dfs.core.windows.net/run")
    for wrong in ("a-secret", "AccountName=team", f"AccountKey={KEY}", "UseDevelopmentStorage=true", "BlobEndpoint=http://[;="):
        monkeypatch.setenv(CONNECTION_STRING, wrong)
        with pytest.raises(InputError, match="AZURE_STORAGE_CONNECTION_STRING lacks the account or its key") as said:
            connection_string(url)
        assert wrong not in str(said.value)
    monkeypatch.setenv(CONNECTION_STRING, f"AccountName=team;AccountKey={KEY};BlobEndpoint=http://storage.example/team")
    with pytest.raises(InputError, match=r"storage\.example uses plain HTTP"):
        clouds.open_stores(url)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "named")
    assert connection_string(url) == {}


@pytest.mark.skipif(not azurite(), reason="Azurite isn't installed (make azurite)")
def test_with_a_connection_string_a_server_takes_what_is_stored(
    storage: tuple[type[Storage], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with az_server(tmp_path) as server:
        text = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={server.endpoint}/{ACCOUNT}"
        monkeypatch.setenv(CONNECTION_STRING, text)
        objects = Objects(server.url("run"))
        objects.put("run.json", b"{}", None)
        found = objects.get("run.json")
        assert found is not None
        assert found.content == b"{}"
