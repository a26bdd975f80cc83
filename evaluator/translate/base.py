"""What a translator is, and the table of translators."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.plugins import plugins


class Translator(Protocol):
    """Translates English texts, batch in, batch out."""

    @property
    def system(self) -> str:
        """Its name in results and in the cache: `amazon_translate`, a model's name, …"""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Whatever else its answers depend on (revision, beams); part of the cache's key."""

    @property
    def price(self) -> float:
        """US dollars per million characters, 0 for what costs nothing."""

    @property
    def batch(self) -> int:
        """Most texts that `translate` should be given at once, so that little is lost when it is cut off."""

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language` (a code like `de`), in their order.

        Raises InputError for a language or text that it can't translate, EngineError where it fails.
        """


class TranslationOutcome(Protocol):
    """A translation, and what became of the question."""

    @property
    def text(self) -> str:
        """The translation; empty where there is none."""

    @property
    def outcome(self) -> str:
        """In one word."""


@runtime_checkable
class Talker(Translator, Protocol):
    """A translator whose answers have to be read. They are kept as given, so that other rules ask for nothing anew."""

    def ask(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """What is answered to each text."""

    def read(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> Sequence[TranslationOutcome]:
        """The translation in each source's answer of `ask`."""


KINDS: dict[str, str] = {
    "model": "evaluator.translate.seq2seq:Seq2SeqTranslator",
    "llm": "evaluator.translate.llm:LLMTranslator",
    "folder": "evaluator.translate.folder:FolderTranslator",
    "amazon": "evaluator.translate.paid:AmazonTranslate",
    "deepl": "evaluator.translate.paid:DeepL",
    "google": "evaluator.translate.paid:Google",
}
"""Kind to class. `model` and `llm` take a model spec, `folder` a folder of translations; the paid ones take their keys from the
environment."""


GROUP = "evaluator.translators"
"""Entry points of other packages: a kind to a class that takes nothing or the text behind the colon."""


_SPECS = ("model", "llm", "folder")
"""Kinds with something behind the colon."""


_ALLOWED = ("pickle", "trust-remote-code")
"""What may stand behind a local model's `?`, with `&` between."""


def local_source(spec: str) -> ModelSource:
    """The model of a spec, its weights here; behind a `?` stands what it is allowed (`SPEC?pickle&trust-remote-code`).

    Raises InputError for anything else behind the `?`, and as `resolve_here` does.
    """
    from evaluator_serving.models.resolving import resolve_here

    plain, _, text = spec.partition("?")
    words = text.split("&") if text else []
    if unknown := [word for word in words if word not in _ALLOWED]:
        raise InputError(f"translator {spec!r}: {unknown[0]!r} can't be allowed: write ?{' or ?'.join(_ALLOWED)}")
    return resolve_here(plain, allow_pickle="pickle" in words, trust_remote_code="trust-remote-code" in words)


def make_translator(spec: str, *options: Any) -> Translator:
    """The translator of a spec: `amazon`, `deepl`, `google`, `model:SPEC`, `llm:SPEC`, `folder:PATH`, or a plug-in's `KIND` or
    `KIND:TEXT`.

    `options` are the kind's own (see its class). Raises InputError for an unknown one, or one whose package or key is missing.
    """
    kind, colon, argument = spec.partition(":")
    plugin = None if kind in KINDS else plugins(GROUP, KINDS).found.get(kind)
    if plugin is not None:
        made: Translator = plugin.load()(argument) if argument else plugin.load()()
        return made
    if kind not in KINDS or bool(colon) != (kind in _SPECS) or (colon and not argument):
        raise InputError(f"unknown translator {spec!r}: choose amazon, deepl, google, model:SPEC, llm:SPEC or folder:PATH")
    module, name = KINDS[kind].split(":")
    make: Any = getattr(importlib.import_module(module), name)
    translator: Translator = make(argument, *options) if argument else make(*options)
    return translator
