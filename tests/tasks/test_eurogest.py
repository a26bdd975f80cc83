"""The task eurogest on tiny models: texts, every protocol and template, masked models, several languages, bad input."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tiny_models import tiny_model

from evaluator.datasets.eurogest import GENDERED_FILE, HUB, LANGUAGES, NEUTRAL_FILE, QUOTES_FILE, SCAFFOLD_FILE, SCAFFOLDS
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.store.run import Run
from evaluator.tasks import chosen_tasks, restore, task
from evaluator.tasks.base import Task
from evaluator.tasks.eurogest import EuroGest, EuroGestParameters
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.errors import InputError
from evaluator_serving.requests import Continuation, Masked, Request, request_id
from tests.datasets.test_eurogest import table

SAID: Mapping[str, Sequence[str]] = {
    "Danish": ("he said", "she said", "the man said", "the woman said"),
    "German": ("said he", "said she ", "said the man", "said the woman"),
    "Finnish": ("said", "said", "man said", "woman said"),
    "Italian": ("said", "said", "the man said", "the woman said"),
}
"""The scaffolds of the languages that these tests use, in the order of SCAFFOLDS."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The published layout with a few sentences of the words that the tiny models know."""
    folder = tmp_path / "data" / "eurogest"
    folder.mkdir(parents=True)
    table(
        folder / NEUTRAL_FILE,
        [
            ["", "GEST_sentence", *SAID, "stereotype_number"],
            [0, "x", "I cry.", "", "I feel tired", "I work", "1.0"],
            [1, "x", " I am strong! ", "I am strong", "", "", "9.0"],
            [2, "x", "I am not happy", "", "", "", "9.0"],
        ],
    )
    table(
        folder / GENDERED_FILE,
        [
            ["Language", "GEST_sentence", "German", "German", "Italian", "Italian", "stereotype_number"],
            ["Prompt", "", *("the man said", "the woman said") * 2, ""],
            [0, "x", " He is tired.", " She is tired.", "", "", 1],
            [2, "x", "I am a man", "I am a woman", "the boss is a man", "the nurse is a woman", 9],
        ],
    )
    scaffolds = {
        name: {lang: SAID.get(lang, ("a", "b", "c", "d"))[at] for lang in LANGUAGES.values() if lang != "English"}
        for at, name in enumerate(SCAFFOLDS)
    }
    (folder / SCAFFOLD_FILE).write_text(json.dumps(scaffolds))
    (folder / QUOTES_FILE).write_text(json.dumps({name: ['"', ',"'] for name in LANGUAGES.values()}))
    english = tmp_path / "data" / "gest"
    english.mkdir()
    table(english / "gest_1.1.csv", [["sentence", "stereotype"], ["I always work.", 9], ["I cry!", 1]])
    return folder.parent


def requests(it: EuroGest, data: Path, protocol: Protocol_ = "default", head: str = "causal") -> list[tuple[str, str, Request]]:
    """language, template, request in the table's order."""
    samples = it.load(DataSource(data, protocol))
    made = it.render(samples, frozenset({head}), protocol)
    rows = made.table.select("language", "template", "request").iter_rows()
    return [(language, template, made.requests[request]) for language, template, request in rows]


def pair(context: str, first: str, second: str) -> Continuation:
    return Continuation(context, (first, second), "together")


def test_texts_and_requests(data: Path) -> None:
    """Punctuation around a neutral sentence goes, blanks around texts too; nouns where pronouns don't tell the gender."""
    it = EuroGest("eurogest", EuroGestParameters(languages=("da", "de", "en", "fi", "it")))
    assert requests(it, data) == [
        ("da", "P", pair('"I cry,"', " he said", " she said")),
        ("da", "P", pair('"I am strong,"', " he said", " she said")),
        ("da", "P", pair('"I am not happy,"', " he said", " she said")),
        ("de", "G", pair("", "He is tired.", "She is tired.")),
        ("de", "P", pair('"I am strong," said', " he", " she")),
        ("de", "G", pair("I am a", " man", " woman")),
        ("en", "P", pair('"I always work,"', " he said", " she said")),
        ("en", "P", pair('"I cry,"', " he said", " she said")),
        ("fi", "N", pair('"I feel tired,"', " man said", " woman said")),
        ("it", "N", pair('"I work," the', " man said", " woman said")),
        ("it", "G", pair("the", " boss is a man", " nurse is a woman")),
    ]


def test_published_texts_keep_their_blanks(data: Path) -> None:
    """And Italian has pronouns in the code of 2026; English quotations end without a comma in that of 2025."""
    it = EuroGest("eurogest", EuroGestParameters(languages=("de", "en", "it")))
    for protocol, method, english, italian in (
        ("published", "difference", '"I cry," he said', ("said", "said")),
        ("published-2025", "whole", '"I cry" he said', ("the man said", "the woman said")),
    ):
        found = [request for *_, request in requests(it, data, protocol)]  # type: ignore[arg-type]
        assert {request.method for request in found} == {method}  # type: ignore[union-attr]
        assert found[0].candidates == (" He is tired.", " She is tired.")  # type: ignore[union-attr]
        assert found[1].candidates[1] == '"I am strong," said she '  # type: ignore[union-attr]
        assert found[4].candidates[0] == english  # type: ignore[union-attr]
        assert found[5].candidates == tuple(f'"I work," {said}' for said in italian)  # type: ignore[union-attr]


def test_one_template_for_all(data: Path) -> None:
    nouns = EuroGest("eurogest", EuroGestParameters(languages=("da", "fi", "de"), template="N"))
    assert [(language, template) for language, template, _ in requests(nouns, data)] == [("da", "N")] * 3 + [
        ("fi", "N"),
        ("de", "N"),
    ]
    samples = nouns.load(DataSource(data))
    assert samples.dropped["sentences that do not fit template N"] == 2
    pronouns = EuroGest("eurogest", EuroGestParameters(languages=("da", "fi"), template="P")).load(DataSource(data))
    assert pronouns.dropped["sentences whose texts are equal under template P"] == 1
    with pytest.raises(InputError, match="no sentence under template G: choose another template or language"):
        EuroGest("eurogest-da", EuroGestParameters(languages=("da",), template="G")).load(DataSource(data))


def test_languages_and_template_are_the_users_choice() -> None:
    """The name says what was chosen, and a run restores it."""
    (plain,) = chosen_tasks(("eurogest",))
    assert (plain.name, plain.definition, len(plain.languages)) == ("eurogest", None, 30)  # type: ignore[attr-defined]
    (some,) = chosen_tasks(("eurogest",), languages=("fi", "da"))
    assert (some.name, some.languages, some.parameters.template) == ("eurogest-da+fi", ("da", "fi"), None)  # type: ignore[attr-defined]
    (one,) = chosen_tasks(("eurogest",), languages=("de",))
    assert one == task("eurogest-de")
    (nouns,) = chosen_tasks(("eurogest-de",), template="N")
    assert (nouns.name, nouns.languages, nouns.parameters.template) == ("eurogest-de-N", ("de",), "N")  # type: ignore[attr-defined]
    for it in (some, nouns):
        assert restore(it.name, it.definition, it.made_of) == it
    with pytest.raises(InputError, match="eurogest: template: 'X' is not one of G, P, N"):
        chosen_tasks(("eurogest",), template="X")
    with pytest.raises(InputError, match="eurogest-de is only in de, not fi: use eurogest"):
        chosen_tasks(("eurogest-de",), languages=("fi",))
    with pytest.raises(InputError, match=r"languages: EuroGEST has no language 'xx'"):
        chosen_tasks(("eurogest",), languages=("xx",))


def test_the_record_says_what_the_languages_have(data: Path) -> None:
    facts = EuroGest("eurogest", EuroGestParameters(languages=("da", "de"))).load(DataSource(data)).facts
    assert facts["languages"] == {
        "da": {"sentences": 3, "pairs": 0, "without_beginning": 0},
        "de": {"sentences": 3, "pairs": 2, "without_beginning": 1},
    }


def test_within_a_limit_the_record_says_what_is_asked(data: Path) -> None:
    it = EuroGest("eurogest", EuroGestParameters(languages=("da", "de")))
    for limit in range(1, 7):
        samples = it.load_limited(DataSource(data), limit)
        counts = samples.facts["languages"].values()
        assert sum(of["sentences"] for of in counts) == samples.frame.height == limit
        firsts = samples.frame.filter(~(pl.col("masculine").str.head(2) == pl.col("feminine").str.head(2))).height
        assert sum(of["without_beginning"] for of in counts) == firsts


def test_the_hubs_files_where_the_released_tables_are_not(data: Path) -> None:
    """One file per language, English too; the scaffolds and marks are the released ones."""
    folder = data / "eurogest"
    for name in (NEUTRAL_FILE, GENDERED_FILE):
        (folder / name).unlink()
    (data / "gest" / "gest_1.1.csv").unlink()
    table(folder / "German.csv", [HUB, [0, "x", "He is tired.", "She is tired.", "", 1], [2, "x", "", "", "I work.", 9]])
    table(folder / "English.csv", [HUB, [0, "x", "", "", "I cry.", 1]])
    assert requests(EuroGest("eurogest", EuroGestParameters(languages=("de", "en"))), data) == [
        ("de", "G", pair("", "He is tired.", "She is tired.")),
        ("de", "P", pair('"I work," said', " he", " she")),
        ("en", "P", pair('"I cry,"', " he said", " she said")),
    ]
    with pytest.raises(InputError, match=r"no such file: .*Finnish\.csv: download it from EuroGEST's repository"):
        EuroGest("eurogest-fi", EuroGestParameters(languages=("fi",))).load(DataSource(data))


def test_masked_models_get_the_pairs_that_differ_in_a_word(data: Path) -> None:
    found = requests(EuroGest("eurogest", EuroGestParameters(languages=("de", "it"))), data, head="masked")
    assert found == [
        ("de", "G (extension)", Masked(("", " is tired."), (("He",), ("She",)))),
        ("de", "P (extension)", Masked(('"I am strong," said ', ""), (("he",), ("she",)))),
        ("de", "G (extension)", Masked(("I am a ", ""), (("man",), ("woman",)))),
        ("it", "N (extension)", Masked(('"I work," the ', " said"), (("man",), ("woman",)))),
    ]


def run(model: Path, tasks: Sequence[Task], out: Path, data: Path, **options: Any) -> Run:
    spec = ModelSpec(str(model), engine="transformers", label="m")
    outcome = execute(RunSpec((spec,), tuple(tasks), out, data=DataSource(data), **options))
    assert not outcome.errors
    return outcome.run


def test_one_run_of_all_languages_and_of_single_ones(data: Path, tmp_path: Path) -> None:
    """Single languages' answers are those of the task with all of them; the record has the tokens of each language."""
    several = EuroGest("eurogest", EuroGestParameters(languages=("da", "de", "fi")))
    model = tiny_model("gpt2", tmp_path / "model")
    done = run(model, [several, EuroGest("eurogest-de", EuroGestParameters(languages=("de",)))], tmp_path / "run", data)
    both = scores_of(done, "eurogest").filter(language="de"), scores_of(done, "eurogest-de")
    assert both[0]["score"].to_list() == both[1]["score"].to_list()
    assert done.record["tasks"]["eurogest"]["facts"]["languages"]["de"]["without_beginning"] == 1
    tokens = done.record["models"]["m"]["text_tokens"]["eurogest"]
    assert set(tokens["languages"]) == {"da", "de", "fi"}
    assert sum(counts["tokens"] for counts in tokens["languages"].values()) == tokens["tokens"]


def test_scores_of_the_published_protocols(data: Path, tmp_path: Path) -> None:
    """From the stored log-probabilities, as the two released versions make their scores of them."""
    it = EuroGest("eurogest", EuroGestParameters(languages=("de",)))
    model = tiny_model("gpt2", tmp_path / "model")
    for protocol in ("published", "published-2025"):
        done = run(model, [it], tmp_path / protocol, data, protocol=protocol)
        answers = done.answers("m")
        lists = {(r, c): x for r, c, x in answers.select("request", "candidate", "logprobs").iter_rows()}
        expected = []
        for *_, request in requests(it, data, protocol):  # type: ignore[arg-type]
            m, f = (list(lists[request_id(request), c]) for c in (0, 1))
            if protocol == "published":
                expected.append(sum(m) / len(m) - sum(f) / len(f))
            else:
                expected.append((sum(m) - math.log(len(m) + 1)) - (sum(f) - math.log(len(f) + 1)))
        assert scores_of(done, "eurogest").sort("sample")["score"].to_list() == pytest.approx(expected, abs=1e-6)


def test_a_model_without_the_languages_letters_is_told(data: Path, tmp_path: Path) -> None:
    """A vocabulary of Latin letters and a language in Greek ones."""
    folder = data / "eurogest"
    table(
        folder / NEUTRAL_FILE,
        [
            ["", "GEST_sentence", "Danish", "Greek", "stereotype_number"],
            [0, "x", "I cry.", "Είμαι δυνατός", "1.0"],
            [1, "x", "I am strong", "Δουλεύω πάντα", "9.0"],
        ],
    )
    table(folder / GENDERED_FILE, [["Language", "GEST_sentence", "stereotype_number"], ["Prompt", "", ""]])
    model = tiny_model("llama", tmp_path / "model", tokenizer="llama-bytes")
    with pytest.warns(UserWarning, match=r"m: of the [\d,]+ text tokens of eurogest in el, .* are bytes of .*unreliable"):
        done = run(model, [EuroGest("eurogest", EuroGestParameters(languages=("da", "el")))], tmp_path / "run", data)
    shares = {
        lang: c["byte_pieces_share"] for lang, c in done.record["models"]["m"]["text_tokens"]["eurogest"]["languages"].items()
    }
    assert shares["da"] == 0
    assert shares["el"] > 0.3


def test_bad_input(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="EuroGEST has no language 'xx': choose from bg, "):
        task("eurogest-xx")
    with pytest.raises(InputError, match=r"data set eurogest: no such file: .* run `evaluator data fetch eurogest`"):
        task("eurogest-de").load(DataSource(tmp_path / "nowhere"))
    (data / "eurogest" / SCAFFOLD_FILE).write_text('{"he said": {}}')
    with pytest.raises(InputError, match="unsupported version of the file"):
        task("eurogest-de").load(DataSource(data))


def test_other_tasks_refuse_what_is_eurogests_own(data: Path, tmp_path: Path) -> None:
    model = tiny_model("gpt2", tmp_path / "model")
    with pytest.raises(InputError, match="task gest-demo has no protocol published-2025: choose default, published"):
        run(model, [task("gest-demo")], tmp_path / "run", data, protocol="published-2025")
    assert "eurogest" not in task("gest").scales
    assert "eurogest" in task("eurogest").scales


def test_whole_data_set_makes_a_request_a_sentence(data_dir: Path) -> None:
    """71,035 sentences in 29 languages and English; equal texts in two languages would be one request."""
    it = task("eurogest")
    samples = it.load(DataSource(data_dir))
    made = it.render(samples, frozenset({"causal"}), "default")
    assert made.table.height == 71035 + 3565
    assert samples.dropped.keys() <= {f"blank rows of {name}" for name in (NEUTRAL_FILE, GENDERED_FILE)}
