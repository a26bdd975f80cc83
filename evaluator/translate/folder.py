"""Existing translations in CSV files with the columns `from` and `to`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluator.csv_file import read_columns
from evaluator.gender.variants import source_key
from evaluator.text_file import NAME_IT
from evaluator_serving.errors import InputError


class FolderTranslator:
    """Translations from FOLDER/LANGUAGE/translations.csv."""

    price = 0.0
    batch = 1_000_000

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._tables: dict[str, dict[str, str]] = {}

    @property
    def system(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def parameters(self) -> Mapping[str, str]:
        """None."""
        return {}

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts' translations. Raises InputError, with the count and the first text, if any are missing."""
        targets = self.find(texts, language)
        missing = [text for text, target in zip(texts, targets, strict=True) if target is None]
        if missing:
            path = self.folder / language / "translations.csv"
            raise InputError(f"{path} lacks {len(missing)} of {len(texts)} texts, the first {missing[0]!r}: add them")
        return [target for target in targets if target is not None]

    def find(self, texts: Sequence[str], language: str) -> list[str | None]:
        """The texts' translations, None if there is none. Typographic differences such as curly apostrophes are ignored."""
        table = {source_key(source): target for source, target in self.table(language).items()}
        return [table.get(source_key(text)) for text in texts]

    def table(self, language: str) -> dict[str, str]:
        """All translations to a language. Raises InputError for a missing, invalid or contradictory file."""
        if language not in self._tables:
            self._tables[language] = read_translations(self.folder / language / "translations.csv")
        return self._tables[language]


def read_translations(path: Path, encoding: str | None = None) -> dict[str, str]:
    """Source → translation, from the columns `from` and `to` of a CSV file; `encoding` as in `read_columns`."""
    table: dict[str, str] = {}
    wanted = "translations must be in LANGUAGE/translations.csv"
    for line, (source, target) in read_columns(path, ("from", "to"), wanted, NAME_IT, encoding):
        if table.setdefault(source, target) != target:
            raise InputError(f"{path}, line {line}: a second translation of {source!r}: keep one")
    return table
