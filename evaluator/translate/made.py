"""How a file of translations was made: SYSTEM/LANGUAGE/translator.json, beside it."""

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
class Made:
    """What translations depend on, and what became of the questions.

    Attributes:
        translator: as it was given; system: its own name.
        dataset: what was translated.
        parameters: of the translator: what else its answers depend on.
        prompt: the TOML that a language model was asked with, None for other systems.
        settings: what an encoder-decoder model's generation_config.json sets, which is applied.
        outcomes: of a language model's answers, how many distinct texts came to what (see `tidy.Outcome`).
        sha256: of translations.csv; empty while it isn't written.
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
        """The folder's, None where it has none that can be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return cls(**json.loads((folder / FILE).read_text("utf8")))
        return None

    @classmethod
    def of(cls, translations: Path) -> Self | None:
        """How a translations.csv was made, None where that isn't known: the file has been edited since, say."""
        made = cls.read(translations.parent)
        return made if made and made.sha256 == hashlib.sha256(translations.read_bytes()).hexdigest() else None

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps({**asdict(self), "translator": redacted(self.translator)}, indent=1, ensure_ascii=False) + "\n"

    @property
    def facts(self) -> dict[str, Any]:
        """For the record of a run that scores the translations."""
        return {name: value for name, value in json.loads(self.text).items() if name not in ("dataset", "sha256")}

    def check(self, folder: Path) -> None:
        """Raise InputError where the folder holds translations that were made otherwise: they would be lost."""
        known = type(self).read(folder)
        if known is None:
            return
        differ = {name for name in ("system", "dataset") if getattr(known, name) != getattr(self, name)}
        keys = {*known.parameters, *self.parameters}
        differ |= {key for key in keys if known.parameters.get(key) != self.parameters.get(key)}
        if differ:
            raise InputError(
                f"{folder} holds translations that were made otherwise (other {', '.join(sorted(differ))}): "
                "give these a name of their own with --name, or another --out"
            )
