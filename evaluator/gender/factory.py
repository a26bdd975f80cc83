"""Detectors by language. Rules and parsers are loaded on first use."""

from typing import TYPE_CHECKING

from evaluator.gender.verdict import GenderDetector
from evaluator_serving.errors import InputError

if TYPE_CHECKING:
    from evaluator.gender.ud.parser import Parser

LANGUAGES: dict[str, str] = {
    "be": "Belarusian",
    "ru": "Russian",
    "uk": "Ukrainian",
    "hr": "Croatian",
    "sl": "Slovene",
    "sr": "Serbian",
    "cs": "Czech",
    "pl": "Polish",
    "sk": "Slovak",
}
"""Code → name of the languages with rules."""


def rules_detector(language: str) -> GenderDetector:
    """The default detector: rules over words. Raises InputError for a language without rules."""
    from evaluator.gender.rules.detector import RulesDetector

    _require(language)
    return RulesDetector.of(language)


def ud_detector(language: str, parser: "Parser") -> GenderDetector:
    """Rules over the Universal Dependencies parses of `parser`. Raises InputError for a language without rules."""
    from evaluator.gender.ud.rules import UdDetector

    _require(language)
    return UdDetector(language, parser)


def _require(language: str) -> None:
    if language not in LANGUAGES:
        raise InputError(
            f"no gender rules for language {language!r}: use one of "
            + ", ".join(f"{code} ({name})" for code, name in LANGUAGES.items())
        )
