"""The record of how a file of translations was made: SYSTEM/LANGUAGE/translator.json beside it."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from evaluator_serving.errors import InputError
from evaluator_serving.secrets import redacted

FILE = "translator.json"


@dataclass(frozen=True, slots=True)
class TranslationRecord:
    """What translations depend on, and how many of them succeeded.

    Attributes:
        translator: the spec on the command line; system: the translator's name.
        dataset: the translated data set.
        parameters: `Translator.parameters`.
        prompt: TOML of a language model's prompt, None for other translators.
        settings: the applied settings of an encoder-decoder model's generation_config.json.
        outcomes: a language model's outcome (`parsing.Outcome`) → number of distinct texts.
        sha256: of translations.csv; empty until it is written.
    """

    translator: str
    system: str
    dataset: str
    parameters: Mapping[str, str]
    prompt: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The folder's record, None if it is missing or unreadable."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return cls(**json.loads((folder / FILE).read_text("utf8")))
        return None

    @classmethod
    def of(cls, translations: Path) -> Self | None:
        """The record of a translations.csv, None if there is none or the file was edited since."""
        record = cls.read(translations.parent)
        return record if record and record.sha256 == hashlib.sha256(translations.read_bytes()).hexdigest() else None

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps({**asdict(self), "translator": redacted(self.translator)}, indent=1, ensure_ascii=False) + "\n"

    @property
    def facts(self) -> dict[str, Any]:
        """The part that a run of the translations records."""
        return {name: value for name, value in json.loads(self.text).items() if name not in ("dataset", "sha256")}

    def check(self, folder: Path) -> None:
        """Raise InputError if the folder holds other translations, which would be overwritten."""
        existing = type(self).read(folder)
        if existing is None:
            return
        differ = {name for name in ("system", "dataset") if getattr(existing, name) != getattr(self, name)}
        keys = {*existing.parameters, *self.parameters}
        differ |= {key for key in keys if existing.parameters.get(key) != self.parameters.get(key)}
        if differ:
            raise InputError(
                f"{folder} holds other translations (different {', '.join(sorted(differ))}): "
                "give these another name with --name, or another --out"
            )
