"""Stanza and spaCy as parsers. Their models could not be had where this was written: the adapters follow the packages'
documented interface and are tested on stand-ins for it, not on the packages themselves.
"""

from collections.abc import Sequence
from typing import Any

from evaluator.gender.ud.parser import Parse, UdToken
from evaluator_serving.errors import InputError

SPACY_MODELS: dict[str, str] = {
    "hr": "hr_core_news_sm",
    "pl": "pl_core_news_sm",
    "ru": "ru_core_news_sm",
    "sl": "sl_core_news_sm",
    "uk": "uk_core_news_sm",
}
"""Smallest model a language. Mind their licences: the Polish one is under the GPL."""


class StanzaParser:
    """`Parser` over Stanza, which has models for all nine languages (`pip install stanza`; `stanza.download("sk")`)."""

    def __init__(self) -> None:
        """Raises InputError if the package is missing."""
        self._stanza = _import("stanza")
        self._pipelines: dict[str, Any] = {}

    def fingerprint(self, language: str) -> str:
        """Package version and language."""
        return f"stanza-{self._stanza.__version__}-{language}"

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """Parse the texts. Raises InputError where the language's model has not been downloaded."""
        if language not in self._pipelines:
            try:
                self._pipelines[language] = self._stanza.Pipeline(
                    language, processors="tokenize,mwt,pos,lemma,depparse", download_method=None, verbose=False
                )
            except Exception as error:  # Stanza raises several kinds for a missing model
                raise InputError(f'Stanza has no model for {language} ({error}): run stanza.download("{language}")') from error
        pipeline = self._pipelines[language]
        return [
            tuple(
                tuple(UdToken(w.id, w.text, w.upos or "X", w.head, w.deprel or "dep", w.feats or "") for w in sentence.words)
                for sentence in pipeline(text).sentences
            )
            if text.strip()
            else ()
            for text in texts
        ]


class SpacyParser:
    """`Parser` over spaCy's models (SPACY_MODELS), which split no multiword tokens."""

    def __init__(self) -> None:
        """Raises InputError if the package is missing."""
        self._spacy = _import("spacy")
        self._models: dict[str, Any] = {}

    def fingerprint(self, language: str) -> str:
        """Model's name and version."""
        meta = self._model(language).meta
        return f"spacy-{meta['lang']}-{meta['name']}-{meta['version']}"

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """Parse the texts. Raises InputError for a language without a spaCy model or where it is not installed."""
        return [
            tuple(self._sentence(sentence) for sentence in document.sents) if document.text.strip() else ()
            for document in self._model(language).pipe(texts)
        ]

    @staticmethod
    def _sentence(sentence: Any) -> tuple[UdToken, ...]:
        words = [token for token in sentence if not token.is_space]
        number = {token.i: position for position, token in enumerate(words, start=1)}
        return tuple(
            UdToken(
                id=number[token.i],
                text=token.text,
                upos=token.pos_,
                head=0 if token.head.i == token.i else number.get(token.head.i, 0),
                deprel="root" if token.head.i == token.i else token.dep_.lower(),
                feats=str(token.morph),
            )
            for token in words
        )

    def _model(self, language: str) -> Any:
        if language not in self._models:
            name = SPACY_MODELS.get(language)
            if name is None:
                raise InputError(
                    f"spaCy has no model for {language!r}: use one of {' '.join(SPACY_MODELS)}, or --detector stanza"
                )
            try:
                self._models[language] = self._spacy.load(name)
            except OSError as error:
                raise InputError(f"spaCy's model {name} is not installed: run python -m spacy download {name}") from error
        return self._models[language]


def _import(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"--detector {package} needs the package {package}: pip install {package}") from error
