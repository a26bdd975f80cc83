"""Amazon, DeepL and Google through their real clients against a local server: requests, replies, errors, rate limits."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from evaluator.translate.paid import RETRIES, AmazonTranslate, DeepL, Google, Paid
from evaluator_serving.errors import EngineError, InputError
from tests.local_server import Handler, LocalServer

pytest.importorskip("boto3")
pytest.importorskip("deepl")
pytest.importorskip("google.cloud.translate_v3")


class Server(LocalServer):
    """Translates TEXT to LANGUAGE:TEXT in each service's format; the first replies can be set to error codes."""

    errors: list[int]
    seen: list[tuple[str, dict[str, Any]]]


class Services(Handler):
    server: Server

    def do_POST(self) -> None:
        body = self.body().decode()
        service = self.headers.get("X-Amz-Target") or self.path.split("?")[0]
        form = self.headers["Content-Type"].startswith("application/x-www-form")
        asked: dict[str, Any] = parse_qs(body) if form else json.loads(body)
        self.server.seen.append((service, asked))
        if self.server.errors:
            code = self.server.errors.pop(0)
            aws = "AWSShine" in service
            kind = {429: "ThrottlingException", 400: "InvalidRequestException"}.get(code, "InternalServerException")
            content = {"__type": kind, "message": "no", "error": {"message": "no", "code": code}}
            self.tell(400 if aws and code == 429 else code, content)
        elif "AWSShine" in service:
            self.tell(200, {"TranslatedText": f"{asked['TargetLanguageCode']}:{asked['Text']}"})
        elif "translateText" in service:
            language = asked["targetLanguageCode"]
            self.tell(200, {"translations": [{"translatedText": f"{language}:{text}"} for text in asked["contents"]]})
        else:
            texts, target = asked["text"], asked["target_lang"]
            language = target[0] if isinstance(target, list) else target
            answers = [
                {"detected_source_language": "EN", "text": f"{language.lower()}:{text}", "billed_characters": 1}
                for text in texts
            ]
            self.tell(200, {"translations": answers})

    def tell(self, code: int, content: dict[str, Any]) -> None:
        self.answer(code, content, {"content-type": "application/json"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server(Services)
    found.errors, found.seen = [], []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DEEPL_AUTH_KEY", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    yield found
    found.shutdown()
    found.server_close()


def make(kind: type[Paid], server: Server, waits: list[float]) -> Paid:
    address = f"http://127.0.0.1:{server.server_port}"
    if kind is Google:
        from google.auth.credentials import AnonymousCredentials

        return Google(address, AnonymousCredentials(), sleep=waits.append)
    return kind(address, sleep=waits.append)


SERVICES = pytest.mark.parametrize("kind", [AmazonTranslate, DeepL, Google])


@SERVICES
def test_translates(kind: type[Paid], server: Server) -> None:
    translator = make(kind, server, [])
    texts = ["A cook is BLANK."] if kind is AmazonTranslate else ["A cook is BLANK.", "Žltá & <b>"]
    assert translator.translate(texts, "sk") == [f"sk:{text}" for text in texts]
    assert len(server.seen) == 1
    assert translator.price > 0


@SERVICES
@pytest.mark.parametrize("code", [408, 409, 429, 503, 529])
def test_waits_and_tries_again(kind: type[Paid], server: Server, code: int) -> None:
    waits: list[float] = []
    server.errors = [code, code]
    assert make(kind, server, waits).translate(["a"], "sk") == ["sk:a"]
    assert len(server.seen) == 3
    assert [wait for wait in waits if wait >= 1] == [1, 2]


@SERVICES
def test_gives_up_in_the_end(kind: type[Paid], server: Server) -> None:
    server.errors = [503] * 20
    with pytest.raises(EngineError, match="failed 7 times"):
        make(kind, server, []).translate(["a"], "sk")
    assert len(server.seen) == RETRIES + 1


@SERVICES
def test_a_refusal_is_not_repeated(kind: type[Paid], server: Server) -> None:
    server.errors = [400]
    with pytest.raises(InputError, match="rejected the request"):
        make(kind, server, []).translate(["a"], "xx")
    assert len(server.seen) == 1


@SERVICES
def test_without_a_key(kind: type[Paid], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "DEEPL_AUTH_KEY", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="environment variable"):
        make(kind, server, []).translate(["a"], "sk")


@SERVICES
def test_a_service_that_is_not_there(kind: type[Paid], server: Server) -> None:
    waits: list[float] = []
    translator = make(kind, server, waits)
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineError, match=rf"failed {RETRIES + 1} times"):
        translator.translate(["a"], "sk")
    assert len([wait for wait in waits if wait >= 1]) == RETRIES
