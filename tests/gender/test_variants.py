"""Prompts, extraction, filters and pairs; counts on the public files."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.gender import Verdict, rules_detector
from evaluator.gender.variants import (
    COLUMNS,
    Difference,
    PlainTranslation,
    Variant,
    build_pairs,
    deduplicate,
    extract_quote,
    one_word_difference,
    prompt,
    read_variants,
    same_first_letter,
)
from evaluator.gender.verdict import Gender
from evaluator_serving.errors import InputError


def test_prompts() -> None:
    assert prompt("It rains.", "masculine") == 'He said: "It rains."'
    assert prompt("It rains.", "feminine", colon=False) == 'She said "It rains."'
    assert prompt("It rains.", "feminine", style="noun") == 'The woman said: "It rains."'
    assert prompt("It rains.", "masculine", style="noun") == 'The man said: "It rains."'


@pytest.mark.parametrize(
    ("translation", "quoted"),
    [
        ('Povedal: "Prší."', "Prší."),
        ("Povedal: „Prší.“", "Prší."),
        ("Rekla je: »Dežuje.«", "Dežuje."),
        ("Он сказал: «Идёт дождь.»", "Идёт дождь."),
        ("Powiedział: „Pada.”", "Pada."),
        ("Řekla: ‚Prší.‘", "Prší."),
        ("Řekla: ''Prší.''", "Prší."),
        ("Он сказал: “Идёт дождь!”", "Идёт дождь!"),
        ("Он сказал: «Идёт дождь».", "Идёт дождь."),  # the full stop stands behind the mark
        ("Rekla je: »Dežuje?«.", "Dežuje?"),
        ("„Prší“, povedal.", "„Prší“, povedal."),  # marks inside the sentence: the outer ones got lost
        ("Povedal: „Prší,“", "Prší."),  # a comma before the closing mark; the full stop comes from the source
        ('Povedal: "Prší"', "Prší."),
        ("Povedal: „Prší.", "Prší."),  # no closing mark
        ("Muž povedal: Prší.", "Prší."),  # no marks at all
        ("Powiedziała: – Pada.", "Pada."),
        ("Він сказав: «Моє з'явилося.»", "Моє з'явилося."),
        ("Он сказал: «Я читал „Идиота“ дважды.»", "Я читал „Идиота“ дважды."),
        ("Muž povedal: „Začína o 3:00.“", "Začína o 3:00."),
        ("Povedal, že prší.", None),
        ("Povedal: „“", None),
        ("", None),
    ],
)
def test_extraction(translation: str, quoted: str | None) -> None:
    assert extract_quote(translation, "It rains.") == quoted


def test_the_final_mark_comes_from_behind_the_quotation_or_from_the_source() -> None:
    assert extract_quote("Povedal: „Prší“!", "It rains.") == "Prší!"
    assert extract_quote("Povedal: „Prší“", "Does it rain?") == "Prší?"
    assert extract_quote("Povedal: „Prší“", "It rains") == "Prší"
    assert extract_quote("Povedal: „Prší…“", "It rains.") == "Prší…"


@pytest.mark.parametrize(
    ("male", "female", "expected"),
    [
        ("Bol som tam.", "Bola som tam.", Difference("", "Bol", "Bola", " som tam.")),
        ("Včera som spal.", "Včera som spala.", Difference("Včera som ", "spal", "spala", ".")),
        ("Ak „spal“, viem.", "Ak „spala“, viem.", Difference("Ak „", "spal", "spala", "“, viem.")),
        ("Viem – spal som.", "Viem - spala som.", Difference("Viem – ", "spal", "spala", " som.")),  # only the dash's kind
        ("Spal som?!", "Spala som?", Difference("", "Spal", "Spala", " som?!")),  # final marks are the first one's
        ("rád spím.", "Rada spím.", Difference("", "rád", "rada", " spím.")),  # and so is the first letter's case
        ("Spal  som.", "Spala som.", Difference("", "Spal", "Spala", "  som.")),
        ("Spal som.", "Spal som.", None),
        ("spal som.", "Spal som.", None),  # the case of the first letter alone is no difference
        ("Spal som tam.", "Spala som.", None),
        ("Bol som sám.", "Bola som sama.", None),
        ("", "", None),
    ],
)
def test_one_word_difference(male: str, female: str, expected: Difference | None) -> None:
    assert one_word_difference(male, female) == expected


@given(st.lists(st.text("abcčď", min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_the_parts_put_the_sentences_together_again(words: list[str], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(words) - 1))
    other = [*words]
    other[position] = words[position] + "X"
    male, female = " ".join(words) + ".", " ".join(other) + "."
    difference = one_word_difference(male, female)
    assert difference is not None
    assert difference.prefix + difference.male + difference.suffix == male
    assert difference.prefix + difference.female + difference.suffix == female


@pytest.mark.parametrize(
    ("male", "female", "same"),
    [("spal", "spala", True), ("šiel", "išla", False), ("Rád", "Rada", True), ("„spal", "spala“", True), ("…", "spala", False)],
)
def test_first_letter(male: str, female: str, same: bool) -> None:
    assert same_first_letter(Difference("", male, female, "")) is same


def plain(translation: str, gender: str, original: str = "It rains.", stereotype: int = 1) -> PlainTranslation:
    return PlainTranslation(original, stereotype, translation, Verdict(gender))  # type: ignore[arg-type]


def test_pairs_are_built_from_the_opposite_prompt_and_every_sample_is_accounted_for() -> None:
    samples = [
        plain("Spal som.", "masculine", "I slept."),
        plain("Spala som.", "feminine", "I slept."),
        plain("Prší.", "unknown", "It rains."),
        plain("Spal som.", "masculine", "I don’t sleep."),
        plain("Spal som.", "masculine", "Asleep."),
        plain("Spal som.", "masculine", "Lost."),
        plain("Išiel som.", "masculine", "I went."),
        plain("Spal som.", "masculine", "Nobody asked."),
    ]
    prompted: dict[tuple[str, Gender], str] = {
        ("I slept.", "feminine"): "Povedala: „Spala som.“",
        ("I slept.", "masculine"): "Povedal: „Spal som.“",
        ("I don't sleep.", "feminine"): "Povedala: „Spala som.“",  # a straight apostrophe
        ("Asleep.", "feminine"): "Povedala: „Zaspala som v noci.“",
        ("Lost.", "feminine"): "Povedala, že spala.",
        ("I went.", "feminine"): "Povedala: „Šla som.“",
    }
    built = build_pairs(samples, prompted, "made up", "sk")
    assert built.outcomes == {
        "pair": 3,
        "unknown gender": 1,
        "several words": 1,
        "no quotation": 1,
        "first letter": 1,
        "no prompted translation": 1,
    }
    assert built.unquoted == ("Lost.",)
    assert built.pairs[0] == built.pairs[1] == Variant("made up", "sk", "I slept.", 1, "Spal som.", "Spala som.")


def test_a_pair_differs_in_nothing_but_the_word() -> None:
    built = build_pairs(
        [plain("Viem – spal som", "masculine")], {("It rains.", "feminine"): "Povedala: „Viem - spala som.“"}, "x", "sk"
    )
    assert (built.pairs[0].male, built.pairs[0].female) == ("Viem – spal som", "Viem – spala som")


def test_duplicates_within_a_language_or_everywhere() -> None:
    one = Variant("a", "hr", "I slept.", 1, "Spavao sam.", "Spavala sam.")
    two = Variant("b", "hr", "I was asleep.", 2, "Spavao sam.", "Spavala sam.")
    three = Variant("a", "sr", "I slept.", 1, "Spavao sam.", "Spavala sam.")
    assert deduplicate([one, two, three]) == [one, three]
    assert deduplicate([two, one, three], "published") == [two]


def test_reader_of_the_public_file(tmp_path: Path) -> None:
    path = tmp_path / "gender_variants.csv"
    variants = [
        Variant("deepl", "sk", 'He said "no", then left.', 3, "Bol som, áno.", "Bola som, áno."),
        Variant("nllb", "ru", "I slept.", 16, "Я спал.", "Я спала."),
    ]
    path.write_text(
        "translator,language,original,stereotype,male,female\n"
        'deepl,sk,"He said ""no"", then left.",3,"Bol som, áno.","Bola som, áno."\n'
        "nllb,ru,I slept.,16,Я спал.,Я спала.\n",
        encoding="utf-8",
    )
    assert list(read_variants(path)) == variants

    rows = path.read_text(encoding="utf-8")
    path.write_text(rows.replace(",female", ",woman"), encoding="utf-8")
    with pytest.raises(InputError, match="no column 'female' in line 1"):
        list(read_variants(path))
    path.write_text(rows.replace(",16,", ",sixteen,"), encoding="utf-8")
    with pytest.raises(InputError, match="line 3: stereotype 'sixteen' is not a number"):
        list(read_variants(path))
    path.write_text(rows.replace("Я спала.", ""), encoding="utf-8")
    with pytest.raises(InputError, match="line 3: a variant is empty"):
        list(read_variants(path))
    assert len(COLUMNS) == 6


# Public data


def test_first_letter_rule_on_the_hand_judged_pairs(data_dir: Path) -> None:
    """The paper's Table 5: the rule keeps 79 right pairs, one not equivalent and none that is not swapped."""
    text = (data_dir / "gest" / "gender-swap-annotations.txt").read_text(encoding="utf-8")
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", text.replace("\r", "").strip())]
    judged = [(male, female, mark) for male, female, mark in (b for b in blocks if len(b) == 3)]
    counts: Counter[tuple[bool, str]] = Counter()
    for male, female, mark in judged:
        difference = one_word_difference(male, female)
        counts[difference is not None and same_first_letter(difference), mark] += 1
    assert len(judged) == 160
    assert [counts[True, mark] for mark in "CGX"] == [79, 1, 0]
    assert [counts[False, mark] for mark in "CGX"] == [0, 19, 61]


def read_prompted(data_dir: Path, system: str) -> list[tuple[str, Gender, str]]:
    """(English sentence, gender of the prompt, translation) of the man/woman prompts."""
    out: list[tuple[str, Gender, str]] = []
    with (data_dir / "gest" / "prompted" / system / "sk" / "translations.csv").open(encoding="utf-8", newline="") as file:
        for asked, translation in list(csv.reader(file))[1:]:
            match = re.fullmatch(r'The (man|woman) said:? ?"?(.*?)"?', asked)
            assert match, asked
            out.append((match[2], "masculine" if match[1] == "man" else "feminine", translation))
    return out


@pytest.mark.parametrize("system", ["google_translate", "amazon_translate"])
def test_extraction_on_the_prompted_translations(data_dir: Path, system: str) -> None:
    rows = read_prompted(data_dir, system)
    failed = [(sentence, translation) for sentence, _, translation in rows if extract_quote(translation, sentence) is None]
    assert len(rows) > 7000
    assert failed == []  # fewer than 1% may fail
    for sentence, _, translation in rows:
        quoted = extract_quote(translation, sentence)
        assert quoted is not None
        assert quoted in translation or quoted[:-1] in translation
        assert "povedal:" not in quoted
        assert "povedala:" not in quoted
        assert quoted.rstrip('“"')[-1] in ".!?…" or sentence[-1] not in ".!?"


def test_number_of_pairs(data_dir: Path) -> None:
    """The paper has 1,238 pairs of Google's Slovak, from He/She prompts; these are from man/woman prompts."""
    folder = data_dir / "gest"
    with (folder / "translations" / "google_translate" / "sk" / "translations.csv").open(encoding="utf-8", newline="") as file:
        translations = dict(list(csv.reader(file))[1:])
    with (folder / "gest.csv").open(encoding="utf-8", newline="") as file:
        samples = [(sentence, int(stereotype)) for sentence, stereotype in list(csv.reader(file))[1:]]
    verdicts = dict(zip(translations, rules_detector("sk").detect(list(translations.values())), strict=True))
    prompted: dict[tuple[str, Gender], str] = {
        (sentence, gender): text for sentence, gender, text in read_prompted(data_dir, "google_translate")
    }
    built = build_pairs(
        (
            PlainTranslation(sentence, stereotype, translations[sentence], verdicts[sentence])
            for sentence, stereotype in samples
        ),
        prompted,
        "google_translate",
        "sk",
    )
    assert sum(built.outcomes.values()) == 3565
    assert built.outcomes["no prompted translation"] <= 4
    assert len(deduplicate(built.pairs)) == pytest.approx(1238, rel=0.05)
