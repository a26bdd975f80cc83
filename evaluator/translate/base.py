"""What a translator is, and the table of translators."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evaluator_serving.errors import InputError
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


KINDS: dict[str, str] = {
    "model": "evaluator.translate.seq2seq:Seq2SeqTranslator",
    "folder": "evaluator.translate.folder:FolderTranslator",
    "amazon": "evaluator.translate.paid:AmazonTranslate",
    "deepl": "evaluator.translate.paid:DeepL",
    "google": "evaluator.translate.paid:Google",
}
"""Kind to class. `model` takes a model spec, `folder` a folder of translations; the paid ones take their keys from the
environment."""


GROUP = "evaluator.translators"
"""Entry points of other packages: a kind to a class that takes nothing or the text behind the colon."""


def make_translator(spec: str) -> Translator:
    """The translator of a spec: `amazon`, `deepl`, `google`, `model:SPEC`, `folder:PATH`, or a plug-in's `KIND` or `KIND:TEXT`.

    Raises InputError for an unknown one, or one whose package or key is missing.
    """
    kind, colon, argument = spec.partition(":")
    plugin = None if kind in KINDS else plugins(GROUP, KINDS).found.get(kind)
    if plugin is not None:
        made: Translator = plugin.load()(argument) if argument else plugin.load()()
        return made
    if kind not in KINDS or bool(colon) != (kind in ("model", "folder")) or (colon and not argument):
        raise InputError(f"unknown translator {spec!r}: choose amazon, deepl, google, model:SPEC or folder:PATH")
    module, name = KINDS[kind].split(":")
    make: Any = getattr(importlib.import_module(module), name)
    translator: Translator = make(argument) if argument else make()
    return translator
