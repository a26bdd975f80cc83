"""The interface of translators, and their registry."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from evaluator.translate.parsing import ParsedTranslation
from evaluator_serving.errors import InputError
from evaluator_serving.models.source import ModelSource
from evaluator_serving.plugins import Registry


class Translator(Protocol):
    """Translates batches of English texts."""

    @property
    def system(self) -> str:
        """Name in results and in the cache: `amazon_translate`, a model's name, …"""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Everything else that translations depend on (revision, beams); part of the cache key."""

    @property
    def price(self) -> float:
        """US dollars per million characters; 0 if it is free."""

    @property
    def batch(self) -> int:
        """Largest number of texts per call of `translate`: an interruption loses at most one batch."""

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language` (a code like `de`), in their order.

        Raises InputError for a language or text that cannot be translated, EngineError if the translator fails.
        """


@runtime_checkable
class ChatTranslator(Translator, Protocol):
    """A translator whose answers must be parsed. The cache stores unparsed answers, so that parsing rules can change."""

    def generate(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """The unparsed answer to each text."""

    def parse(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> list[ParsedTranslation]:
        """The translation in each answer of `generate`."""

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The parsed translations; an empty text if the answer holds none."""
        return [parsed.text for parsed in self.parse(texts, language, self.generate(texts, language))]


def answers_of(translator: Translator, texts: Sequence[str], language: str) -> Sequence[Any]:
    """What the cache stores of each text: its translation, or a ChatTranslator's unparsed answer."""
    return (translator.generate if isinstance(translator, ChatTranslator) else translator.translate)(texts, language)


KINDS = Registry(
    {
        "model": "evaluator.translate.seq2seq:Seq2SeqTranslator",
        "llm": "evaluator.translate.llm:LLMTranslator",
        "folder": "evaluator.translate.folder:FolderTranslator",
        "amazon": "evaluator.translate.paid:AmazonTranslate",
        "deepl": "evaluator.translate.paid:DeepL",
        "google": "evaluator.translate.paid:Google",
    },
    group="evaluator.translators",
)
"""Kind → class. `model` and `llm` take a model spec, `folder` a folder of translations; paid services read their keys from the
environment. The constructor of a plug-in's class takes nothing, or the text after the colon."""


_SPECS = ("model", "llm", "folder")
"""Kinds that take an argument after the colon."""


_ALLOWED = ("pickle", "trust-remote-code")
"""Options after a local model's `?`, separated by `&`."""


def local_source(spec: str) -> ModelSource:
    """Resolve a model spec with optional permissions (`SPEC?pickle&trust-remote-code`) and download its weights.

    Raises InputError for an unknown permission, and as `resolve_here` does.
    """
    from evaluator_serving.models.resolving import resolve_here

    plain, _, text = spec.partition("?")
    words = text.split("&") if text else []
    if unknown := [word for word in words if word not in _ALLOWED]:
        raise InputError(f"translator {spec!r}: unknown option {unknown[0]!r}: write ?{' or ?'.join(_ALLOWED)}")
    return resolve_here(plain, allow_pickle="pickle" in words, trust_remote_code="trust-remote-code" in words)


def make_translator(spec: str, *options: Any) -> Translator:
    """The translator of a spec: `amazon`, `deepl`, `google`, `model:SPEC`, `llm:SPEC`, `folder:PATH`, or a plug-in's `KIND` or
    `KIND:TEXT`.

    `options`: arguments of the kind's class. Raises InputError for an unknown kind, or a missing package or key.
    """
    kind, colon, argument = spec.partition(":")
    own = kind in KINDS.own
    if kind not in KINDS or (own and (bool(colon) != (kind in _SPECS) or (colon and not argument))):
        raise InputError(f"unknown translator {spec!r}: choose amazon, deepl, google, model:SPEC, llm:SPEC or folder:PATH")
    translator: Translator = KINDS[kind](*([argument] if argument else []), *(options if own else []))
    return translator
