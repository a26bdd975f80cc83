"""Gender pairs from folders of translations."""

import csv
from pathlib import Path

import polars as pl
import pytest

from evaluator.cli.translate import command
from evaluator.gender import rules_detector
from evaluator.translate.variants import PromptedSystem, SystemTranslations, gender_pairs
from evaluator.translation.sentences import folder_name
from evaluator_serving.errors import InputError

FRAME = pl.DataFrame({"sentence": ["I was sad.", "I go home.", "I worked."], "group": ["1", "2", "8"]})
PLAIN = SystemTranslations(
    "sk", (("I was sad.", "Bola som smutné dieťa."), ("I go home.", "Idem domov."), ("I worked.", "Pracoval som."))
)


def test_only_the_opposite_gender_is_asked() -> None:
    asked: list[str] = []

    def prompted(texts: list[str], language: str) -> list[str | None]:
        asked.extend(texts)
        return ["Povedal: „Bol som smutné dieťa.“", None]

    built = gender_pairs(FRAME, PLAIN, prompted, rules_detector("sk"), PromptedSystem("sys"))  # type: ignore[arg-type]
    assert asked == ['He said: "I was sad."', 'She said: "I worked."']
    assert [(v.male, v.female, v.stereotype, v.translator) for v in built.pairs] == [
        ("Bol som smutné dieťa.", "Bola som smutné dieťa.", 1, "sys")
    ]
    assert built.outcomes == {"pair": 1, "unknown gender": 1, "no prompted translation": 1}


@pytest.mark.parametrize(
    ("system", "language", "first"),
    [("deepl", "cs", 'She said "I worked."'), ("deepl", "sk", 'She said: "I worked."')],
)
def test_deepl_to_czech_is_asked_without_a_colon(system: str, language: str, first: str) -> None:
    asked: list[str] = []
    text = {"cs": "Byl jsem v práci.", "sk": "Bol som v práci."}[language]
    plain = SystemTranslations(language, (("I worked.", text),))
    gender_pairs(
        FRAME.tail(1), plain, lambda texts, _: asked.extend(texts) or [None], rules_detector(language), PromptedSystem(system)
    )
    assert asked == [first]


def test_published_pairs_through_the_command(data_dir: Path, tmp_path: Path) -> None:
    """Google's Slovak: within 5% of the published 1,238 pairs."""
    gest = data_dir / "gest"
    arguments = ["gest", "--to", "sk", "--translator", f"folder:{gest / 'translations' / 'google_translate'}"]
    arguments += ["--prompted", f"folder:{gest / 'prompted' / 'google_translate'}", "--prompt-style", "noun"]
    command.main([*arguments, "--variants", "--out", str(tmp_path), "--data", str(data_dir)], standalone_mode=False)
    folder = tmp_path / "google_translate" / "sk"
    with (folder / "gender_variants.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == pytest.approx(1238, rel=0.05)
    assert all(row["male"] != row["female"] for row in rows)
    with (folder / "translations.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3555


def test_names_of_systems_are_folders(tmp_path: Path) -> None:
    assert folder_name("facebook/nllb-200-3.3B") == "facebook--nllb-200-3.3B"
    assert folder_name(str(tmp_path)) == tmp_path.name


def test_unknown_language_and_translator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no gender rules for language 'de'"):
        command.main(
            ["gest-demo", "--to", "de", "--translator", "folder:x", "--variants", "--out", str(tmp_path)], standalone_mode=False
        )
    with pytest.raises(InputError, match="unknown translator 'babel'"):
        command.main(["gest-demo", "--to", "sk", "--translator", "babel", "--out", str(tmp_path)], standalone_mode=False)
