"""Readers of quadruples with a keyword: counts on the public files, every kind of bad input on made-up ones."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from evaluator.datasets import stereoset
from evaluator.datasets import word_filling as wf
from evaluator.datasets.released_controls import released_controls
from evaluator.vocabulary import Samples
from evaluator_serving.errors import InputError

QUADRUPLE = """The <kind> girl sang.
The <kind> boy sang.

The <rude> girl sang.
The <rude> boy sang.
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf8")
    return path


@pytest.fixture(scope="module")
def stereoset_en(data_dir: Path) -> Samples:
    return stereoset.read(data_dir / "stereoset" / "dev.json")


def test_public_counts(data_dir: Path) -> None:
    folder = data_dir / "word_filling"
    full = wf.read_quadruples(folder / "stereoset_genderswap.txt")
    filtered = wf.read_quadruples(folder / "stereoset_genderswap_filtered.txt")
    assert (full.frame.height, full.failures) == (251, ())
    assert (filtered.frame.height, filtered.failures) == (147, ())
    slovak = wf.read_slovak(folder / "slovak_gender.csv")
    assert (slovak.frame.height, slovak.failures) == (142, ())
    assert sum(slovak.dropped.values()) == 223 - 142
    assert slovak.dropped["flagged n or ? under competence? and misogynistic?"] == 26


@pytest.mark.parametrize(("bias_type", "originals", "not_one_word"), [("race", 962, 0), ("profession", 809, 1)])
def test_drawn_controls_of_stereoset(stereoset_en: Samples, bias_type: str, originals: int, not_one_word: int) -> None:
    read = wf.drawn_controls(stereoset_en, bias_type)
    frame = read.frame
    assert frame.height == originals * wf.DRAWS
    assert frame["original"].n_unique() == originals
    assert frame.group_by("original").agg(pl.col("control_term").n_unique())["control_term"].unique().to_list() == [10]
    assert read.dropped.get("the two sentences don't differ in exactly one word", 0) == not_one_word
    same = pl.col("control_term").str.to_lowercase() == pl.col("original_term").str.to_lowercase()
    assert frame.filter(same | (pl.col("s0") == pl.col("s2")) | (pl.col("s1") == pl.col("s3"))).is_empty()
    listed = [term for terms in wf.control_terms(bias_type) for term in terms]
    assert set(frame["control_term"]) | set(frame["original_term"]) <= set(listed)
    # Both sentences of the control group got the same term, and it stands outside the keyword.
    keyword = r"<[^>]*>"
    bare = [pl.col(s).str.replace(keyword, "<>").str.to_lowercase() for s in ("s2", "s3")]
    assert frame.filter(~bare[0].str.contains(pl.col("control_term").str.to_lowercase(), literal=True)).is_empty()
    assert frame.filter(~bare[1].str.contains(pl.col("control_term").str.to_lowercase(), literal=True)).is_empty()
    again = wf.drawn_controls(stereoset_en, bias_type).frame
    assert frame.equals(again)
    other = wf.drawn_controls(stereoset_en, bias_type, seed=1).frame
    assert not frame.equals(other)


@pytest.mark.parametrize(("bias_type", "count"), [("race", 9620), ("profession", 8090)])
def test_released_controls_of_stereoset(stereoset_en: Samples, data_dir: Path, bias_type: str, count: int) -> None:
    """Written once more by the released rules: one generator seeded anew for each sentence, term by term."""
    names = json.loads((data_dir / "word_filling" / "control_terms.json").read_text())
    lists = [names["countries"], names["adjectives"]] if bias_type == "race" else [names["professions"]]
    frame = released_controls(stereoset_en, bias_type).frame
    assert frame.height == count
    assert (frame["control_term"] == frame["original_term"]).any(), "a term may be drawn for itself"
    for start in range(0, count, 10):
        s0, s1, *_ = frame.select("s0", "s1").row(start)
        held = [term for terms in lists for term in terms if term.lower() in s0.lower() and term.lower() in s1.lower()]
        term = sorted(held, key=len, reverse=True)[0]
        random.seed(s0)
        for row in range(start, start + 10):
            drawn = random.choice(lists[0] if term in lists[0] else lists[1])
            for before, after in ((s0, "s2"), (s1, "s3")):
                at = before.lower().find(term.lower())
                assert frame[after][row] == before[:at] + drawn + before[at + len(term) :]


def test_released_controls_replace_the_first_occurrence_wherever_it_is() -> None:
    sentences = ["A woman from oman is rude.", "A woman from oman is kind!", "x"]
    columns = {"template": ["intrasentence"], "bias_type": ["race"], "example": ["e"], "sentences": [sentences]}
    frame = released_controls(Samples(pl.DataFrame(columns), {}), "race").frame
    assert frame.select("s0", "s1").row(0) == ("A woman from oman is <rude>.", "A woman from oman is <kind>!")
    # random.seed("A woman from oman is <rude>."); ten times random.choice of the 71 countries
    assert frame["original_term"].unique().to_list() == ["Oman"]
    assert all(s == f"A w{term} from oman is <rude>." for s, term in frame.select("s2", "control_term").iter_rows())


def test_country_is_replaced_by_country_and_people_by_people(stereoset_en: Samples) -> None:
    frame = wf.drawn_controls(stereoset_en, "race").frame
    countries, peoples = (set(terms) for terms in wf.control_terms("race"))
    for original, control in frame.select("original_term", "control_term").iter_rows():
        assert {original, control} <= countries or {original, control} <= peoples


@pytest.mark.parametrize(
    ("sentence", "term", "drawn", "expected"),
    [
        ("The chef is <loud>.", "chef", "pilot", "The pilot is <loud>."),
        ("Chefs are <loud>.", "chef", "pilot", "Pilots are <loud>."),  # plural and capital letter stay
        ("The <cheflike> chef cooks.", "chef", "pilot", "The <cheflike> pilot cooks."),  # the keyword is left alone
        ("The kenyan man is <tall>.", "Kenyan", "Finnish", "The finnish man is <tall>."),  # as StereoSet writes it
        ("The Kenyan man is <tall>.", "Kenyan", "Finnish", "The Finnish man is <tall>."),
        ("A chef met the other chef, <glad>.", "chef", "pilot", "A pilot met the other pilot, <glad>."),
        ("A woman from oman is <shy>.", "Oman", "Laos", "A woman from laos is <shy>."),  # not inside "woman"
    ],
)
def test_replacement(sentence: str, term: str, drawn: str, expected: str) -> None:
    assert wf._replace(sentence, term, drawn) == expected


def test_group_term_prefers_whole_words_then_the_target_then_length() -> None:
    lists = [["Oman", "Africa", "South Africa", "Ethiopia"], ["African", "South African", "Ethiopian"]]

    def found(sentence: str, target: str) -> str | None:
        term = wf._group_term((sentence, sentence), target, lists)
        return term and term[0]

    assert found("A south african is <tall>.", "South African") == "South African"
    assert found("Ethiopians are <tall>.", "Ethiopia") == "Ethiopian"
    assert found("Oman is <far> from africa.", "Oman") == "Oman"
    assert found("The woman is <tall>.", "Oman") is None


def test_bracketed_leaves_punctuation_outside() -> None:
    def apart(first: str, second: str) -> tuple[str, str] | None:
        return wf._one_word_apart(first, second, wf._bracketed)

    assert apart('He is "rude".', 'He is "kind".') == ('He is "<rude>".', 'He is "<kind>".')
    assert apart("He is rude.", "He is very kind.") is None
    assert apart("He is rude now.", "She is kind now.") is None


def test_unknown_bias_type_has_no_terms() -> None:
    with pytest.raises(InputError, match="religion"):
        wf.control_terms("religion")


def test_a_quadruple(tmp_path: Path) -> None:
    read = wf.read_quadruples(write(tmp_path / "q.txt", QUADRUPLE))
    assert read.frame.select(wf.SENTENCES).row(0) == (
        "The <kind> girl sang.",
        "The <rude> girl sang.",
        "The <kind> boy sang.",
        "The <rude> boy sang.",
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("The <kind> boy sang.\n", ""), "1 lines instead of 2"),
        (("<kind> girl", "kind girl"), "0 < and 0 >"),
        (("<rude> boy", "<rude> <boy>"), "2 < and 2 >"),
        (("<kind> girl", "<> girl"), "brackets are empty"),
        (("The <rude> girl sang.", "<No>!"), "share no word"),
    ],
)
def test_a_bad_quadruple_is_named_and_the_others_stay(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    text = f"{QUADRUPLE}\n{QUADRUPLE.replace(*change, 1)}\n{QUADRUPLE}"
    read = wf.read_quadruples(write(tmp_path / "q.txt", text))
    assert read.frame["sample"].to_list() == [0, 2]
    ((name, said),) = read.failures
    assert name == "q.txt line 7"
    assert reason in said


def test_blocks_that_do_not_pair_up(tmp_path: Path) -> None:
    path = write(tmp_path / "q.txt", QUADRUPLE + "\nThe <kind> girl sang.\nThe <kind> boy sang.\n")
    with pytest.raises(InputError, match=r"line 7: 3 blocks"):
        wf.read_quadruples(path)
    with pytest.raises(InputError, match="0 blocks"):
        wf.read_quadruples(write(tmp_path / "empty.txt", ""))


def test_slovak_flags_and_empty_cells(tmp_path: Path) -> None:
    header = "ID,veta1,veta2,veta3,veta4,competence?,misogynistic?\n"
    good = "On <je> tu.,On <nie> tu.,Ona <je> tu.,Ona <nie> tu."
    rows = [f"a,{good},,", f"b,{good},n,", f"c,{good},,?", f"d,{good},,n", "e,On <je> tu.,,Ona <je> tu.,Ona <nie> tu.,,"]
    read = wf.read_slovak(write(tmp_path / "s.csv", header + "\n".join(rows)))
    assert read.frame["sample"].to_list() == [0]
    assert read.dropped == {"flagged n or ? under competence?": 1, "flagged n or ? under misogynistic?": 2}
    assert read.failures == (("ID e", "a sentence is empty"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ID,veta1\n", "no column 'veta2'"),
        ("ID,veta1\n1,2,3\n", "line 2: 3 fields instead of 2"),
        ('ID,"veta1\n', "line 1: not valid CSV"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wf.read_slovak(write(tmp_path / "s.csv", text))


def test_file_that_is_not_there_or_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        wf.read_quadruples(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"a\n\xe9\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        wf.read_quadruples(tmp_path / "latin.txt")


def test_word_counts(tmp_path: Path) -> None:
    counts = wf.read_word_counts(write(tmp_path / "c.tsv", "Loud\t10\nloud\t5\nnew york,3\n"))
    assert dict(counts.iter_rows()) == {"loud": 15.0, "new york": 3.0}
    with pytest.raises(InputError, match="line 2"):
        wf.read_word_counts(write(tmp_path / "bad.tsv", "loud\t10\nquiet\n"))
    with pytest.raises(InputError, match="name a file of words and their counts"):
        wf.read_word_counts(tmp_path / "none.tsv")
