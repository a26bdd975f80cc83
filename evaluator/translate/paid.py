"""Amazon, DeepL and Google, through their client packages (extra `translate`). Keys come from the environment."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import requests
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.network import certificate_remedy, passes

RETRIES = 6
"""Attempts after the first; the waits double from FIRST_WAIT seconds."""

FIRST_WAIT = 1.0


class Retry(Exception):  # noqa: N818 - a signal to retry, not an error
    """The service is busy or limits the request rate."""


class Paid:
    """Rate limiting, retries and errors, common to the services. A subclass implements one call."""

    system = ""
    price = 0.0
    """List price in US dollars per million characters, for estimates only."""

    batch = 1
    pause = 0.0
    """Minimum seconds between the starts of two calls."""

    def __init__(self, endpoint: str | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        """`endpoint` replaces the service's default address. Keys are read at the first call."""
        self._endpoint = endpoint
        self._sleep = sleep
        self._next = 0.0

    @property
    def parameters(self) -> Mapping[str, str]:
        """None."""
        return {}

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`. Raises EngineError if all retries fail, InputError if the service rejects the request."""
        retrying = Retrying(
            retry=retry_if_exception_type(Retry),
            stop=stop_after_attempt(RETRIES + 1),
            wait=wait_exponential(FIRST_WAIT),
            sleep=self._sleep,
        )
        try:
            answers = retrying(self._paced, list(texts), language)
        except RetryError as error:
            last = error.last_attempt.exception()
            raise EngineError(f"{self.system} failed {RETRIES + 1} times: {last}") from last
        if len(answers) != len(texts):
            raise EngineError(f"{self.system} returned {len(answers)} translations of {len(texts)} texts")
        return answers

    def _paced(self, texts: list[str], language: str) -> list[str]:
        self._sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self.pause
        try:
            return self._call(texts, language)
        except Retry as error:
            if remedy := certificate_remedy(error):
                raise InputError(f"{self.system} can't be reached: {error}{remedy}") from error
            raise

    def _call(self, texts: list[str], language: str) -> list[str]:
        """One call. Raises Retry, InputError or EngineError."""
        raise NotImplementedError


def _environment(name: str, service: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InputError(f"{service} needs the environment variable {name}: set it to your key")
    return value


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is not installed: pip install 'stereotype-evaluator[translate]'") from error


class AmazonTranslate(Paid):
    """Amazon Translate. Needs AWS_REGION, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or other credentials for boto3."""

    system = "amazon_translate"
    price = 15.0
    batch = 1
    pause = 0.05

    @cached_property
    def _client(self) -> Any:
        boto3, config = _package("boto3"), _package("botocore.config")
        region = os.environ.get("AWS_REGION") or _environment("AWS_DEFAULT_REGION", self.system)
        once = config.Config(retries={"total_max_attempts": 1, "mode": "standard"})
        return boto3.client("translate", region_name=region, endpoint_url=self._endpoint, config=once)

    def _call(self, texts: list[str], language: str) -> list[str]:
        client, errors = self._client, _package("botocore.exceptions")
        try:
            return [
                client.translate_text(Text=text, SourceLanguageCode="en", TargetLanguageCode=language)["TranslatedText"]
                for text in texts
            ]
        except errors.NoCredentialsError as error:
            raise InputError("amazon_translate needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set them") from error
        except errors.ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ("ThrottlingException", "TooManyRequestsException", "LimitExceededException") or passes(
                error.response["ResponseMetadata"]["HTTPStatusCode"]
            ):
                raise Retry(str(error)) from error
            raise InputError(f"amazon_translate rejected the request: {error}") from error
        except (errors.HTTPClientError, errors.ConnectionError) as error:
            raise Retry(str(error)) from error


class DeepL(Paid):
    """DeepL. Needs DEEPL_AUTH_KEY."""

    system = "deepl"
    price = 25.0
    batch = 50
    variants: Mapping[str, str] = {"en": "EN-US", "pt": "PT-PT", "zh": "ZH-HANS"}
    """Languages for which DeepL requires a variant."""

    @cached_property
    def _client(self) -> Any:
        deepl = _package("deepl")
        deepl.http_client.max_network_retries = 0
        return deepl.Translator(_environment("DEEPL_AUTH_KEY", self.system), server_url=self._endpoint)

    def _call(self, texts: list[str], language: str) -> list[str]:
        client, deepl = self._client, _package("deepl")
        target = self.variants.get(language, language.upper())
        try:
            return [answer.text for answer in client.translate_text(texts, source_lang="EN", target_lang=target)]
        except (deepl.TooManyRequestsException, deepl.ConnectionException) as error:
            raise Retry(str(error)) from error
        except deepl.DeepLException as error:
            if passes(error.http_status_code or 0):
                raise Retry(str(error)) from error
            raise InputError(f"deepl rejected the request: {error}") from error


class Google(Paid):
    """Google Cloud Translation, version 3. Needs GOOGLE_CLOUD_PROJECT and GOOGLE_APPLICATION_CREDENTIALS."""

    system = "google_translate"
    price = 20.0
    batch = 100
    pause = 0.1

    def __init__(self, endpoint: str | None = None, credentials: Any = None, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._credentials = credentials

    @cached_property
    def _client(self) -> Any:
        translate, auth = _package("google.cloud.translate_v3"), _package("google.auth.exceptions")
        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        try:
            return translate.TranslationServiceClient(transport="rest", client_options=options, credentials=self._credentials)
        except auth.DefaultCredentialsError as error:
            raise InputError("google_translate needs GOOGLE_APPLICATION_CREDENTIALS: set it to your key file") from error

    def _call(self, texts: list[str], language: str) -> list[str]:
        project = _environment("GOOGLE_CLOUD_PROJECT", self.system)
        client, errors = self._client, _package("google.api_core.exceptions")
        request = {
            "parent": f"projects/{project}/locations/global",
            "contents": texts,
            "mime_type": "text/plain",
            "source_language_code": "en",
            "target_language_code": language,
        }
        try:
            answer = client.translate_text(request=request, retry=None, timeout=60)
        except (errors.RetryError, requests.RequestException) as error:
            raise Retry(str(error)) from error
        except errors.GoogleAPICallError as error:
            if passes(error.code or 0):
                raise Retry(str(error)) from error
            raise InputError(f"google_translate rejected the request: {error}") from error
        return [translation.translated_text for translation in answer.translations]
