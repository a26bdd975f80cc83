"""How servers are reached: proxies, certificates and headers of the environment, Azure's URLs."""

import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, words

from evaluator_serving.chats import Chat, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.resolving import resolve
from evaluator_serving.network import BUNDLES, proxy_for, share_authorities
from evaluator_serving.openai_engine.engine import OpenAIEngine
from tests.local_server import Handler, LocalServer

TEXT = "Who said it?"
VARIABLES = [name for low in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (low, low.upper())]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing of networks, nor of keys."""
    for name in (*VARIABLES, *BUNDLES, "SSL_CERT_DIR", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def said(spec: str, **extra: Any) -> str:
    """What the model there says to TEXT."""
    source = resolve(spec)
    (row,) = encoder_for(source).encode(Chat((Turn("user", TEXT),))).rows
    engine = OpenAIEngine(source, EngineOptions(extra={"retries": 0, **extra}), [row])
    try:
        ((reply,),) = engine.generate([row])
        return reply.text
    finally:
        engine.close()


@contextmanager
def proxy(server: ChatServer, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy that brings everything to the server: its URL, and what was asked of it."""
    seen: list[str] = []

    class Proxy(Handler):
        def do_CONNECT(self) -> None:
            seen.append(self.path)
            self.send_error(status)

        def do_POST(self) -> None:
            seen.append(self.path)
            asked = urllib.request.Request(f"{server.url}/chat/completions", self.body(), {"content-type": "application/json"})
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as answer:
                self.answer(200, answer.read())

    with LocalServer(Proxy) as http:
        yield http.url, seen


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_server_behind_the_environments_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer() as server, proxy(server) as (url, seen):
        monkeypatch.setenv(name, url.removeprefix("http://") if name == "ALL_PROXY" else url)
        assert said("http://api.talker.example/v1#talker") == words(TEXT)
        assert seen == ["http://api.talker.example/v1/chat/completions"]
        assert said(server.spec) == words(TEXT)
        assert len(seen) == 1, "this machine is reached without it"


def test_what_no_proxy_names_and_this_machine_go_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv(
        "NO_PROXY", "inside.example,10.0.0.0/8, *.star.example b.example:443,192.168.0.1:8443,fd00::/8,[fe80::1]"
    )
    without = ["api.inside.example", "10.1.2.3", "localhost", "localhost.", "127.0.0.9", "0.0.0.0", "[::1]"]
    without += ["api.star.example", "b.example", "192.168.0.1:8443", "[fd00::7]:8000", "[fe80::1]"]
    through = ["api.example", "notb.example", "b.example:444", "192.168.0.1", "[fe80::2]"]
    assert [host for host in without + through if proxy_for(f"https://{host}/v1")] == through
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_for("https://api.example/v1") is None


def test_a_proxy_that_refuses_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer() as server, proxy(server, 407) as (url, _):
        monkeypatch.setenv("HTTPS_PROXY", url.replace("//", "//me:hunter22@"))
        with pytest.raises(InputError, match=r"through the proxy http://.*@127.0.0.1.*407.*user and password") as caught:
            said("https://api.talker.example/v1#talker")
        assert "hunter22" not in str(caught.value)
    for unusable in ("gopher://me:hunter22@proxy:70", "http://me:a#hunter22@proxy:70", "http://me:a/hunter22@proxy:70"):
        monkeypatch.setenv("HTTPS_PROXY", unusable)
        with pytest.raises(InputError, match="correct HTTPS_PROXY") as caught:
            said("https://api.talker.example/v1#talker")
        assert "hunter22" not in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that no authority but itself has signed, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=here -addext subjectAltName=IP:127.0.0.1"
    try:
        subprocess.run([*made.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return cert, key


def hashed(cert: Path) -> Path:
    """A folder with the certificate under the name by which OpenSSL looks for it."""
    folder = cert.parent / "folder"
    folder.mkdir()
    made = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", str(cert)], check=True, capture_output=True, text=True)
    (folder / f"{made.stdout.strip()}.0").write_bytes(cert.read_bytes())
    return folder


@pytest.mark.parametrize("name", [*BUNDLES, "SSL_CERT_DIR"])
def test_a_private_authority(name: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = certificate
    with ChatServer() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
        spec = server.spec.replace("http:", "https:")
        with pytest.raises(InputError, match=r"CERTIFICATE_VERIFY_FAILED.*set SSL_CERT_FILE"):
            said(spec)
        monkeypatch.setenv(name, str(hashed(cert) if name == "SSL_CERT_DIR" else cert))
        assert said(spec) == words(TEXT)
        monkeypatch.setenv(name, str(cert.parent / "missing.pem"))
        with pytest.raises(InputError, match=f"{name} names .*missing.pem, which contains no certificates"):
            said(spec)


def test_all_libraries_get_the_same_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", given := {"REQUESTS_CA_BUNDLE": "/ours.pem"})
    share_authorities()
    assert given == dict.fromkeys(BUNDLES, "/ours.pem")


@pytest.mark.parametrize("tail", ["?api-version=2024-10-21#talker", "/chat/completions?api-version=2024-10-21"])
def test_azures_classic_urls(tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "azure-secret-1")
    with ChatServer() as server:
        server.path = "/openai/deployments/talker/chat/completions?api-version=2024-10-21"
        spec = server.url.replace("/v1", f"/openai/deployments/talker{tail}")
        assert said(spec, key_env="AZURE_KEY") == words(TEXT)
        assert (server.headers[0]["api-key"], server.headers[0].get("authorization")) == ("azure-secret-1", None)
    assert resolve(spec).served.name == "talker"  # type: ignore[union-attr]


def test_headers_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-usual")
    monkeypatch.setenv("ORG", "org-number-7")
    monkeypatch.setenv("TICKET", "Basic dGlja2V0")
    with ChatServer() as server:
        said(server.spec, header="X-Org=ORG, authorization=TICKET")
        sent = server.headers[0]
        assert (sent["x-org"], sent["authorization"]) == ("org-number-7", "Basic dGlja2V0")
        source = resolve(server.spec)
        info = identity("openai", source, EngineOptions(extra={"header": "X-Org=ORG"}))
        assert fingerprint(info) == fingerprint(identity("openai", source, EngineOptions()))
        for header, message in (("X=NO_SUCH", "NO_SUCH is not set"), ("X", "give NAME=VARIABLE"), ("a b=ORG", "NAME=VARIABLE")):
            with pytest.raises(InputError, match=message):
                said(server.spec, header=header)
        monkeypatch.setenv("ORG", "secret-\nvalue")
        with pytest.raises(InputError, match="ORG contains characters that are not allowed") as caught:
            said(server.spec, header="X-Org=ORG")
        assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="TICKET isn't sent"):
        said("http://models.example/v1#m", header="X=TICKET", key_env="NO_KEY")
