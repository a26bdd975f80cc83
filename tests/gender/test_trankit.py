"""The Trankit worker: the protocol against a stand-in for the package, and the real package in its own environment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli.gender import command
from evaluator.gender import LANGUAGES, ud_detector
from evaluator.gender.ud.parse_cache import CachedParser
from evaluator.gender.ud.trankit_client import NAMES, TrankitParser
from evaluator_serving.errors import EngineError, InputError

STAND_IN = """
print("loading a package that prints to standard output")
__version__ = "0.0"

class Pipeline:
    def __init__(self, lang, cache_dir, gpu, embedding):
        print("Loading", lang, gpu)
        self.languages, self.active_lang = [lang], lang

    def add(self, lang):
        print("adding", lang)
        self.languages.append(lang)

    def set_active(self, lang):
        assert lang in self.languages
        print("Active language:", lang)
        self.active_lang = lang

    def posdep(self, text):
        print("parsing", text)
        assert text.strip(), "Input must be a non-empty string."
        if "crash" in text:
            import os
            os.write(2, b"out of memory\\n")
            os._exit(9)
        if "fail" in text:
            raise ValueError("cannot parse this")
        tokens = []
        for number, word in enumerate(text.split(), start=1):
            head = 0 if number == 1 else 1
            token = {"id": number, "text": word, "head": head, "deprel": self.active_lang}
            if "+" in word:
                parts = word.split("+")
                token = {"id": (number, number + 1), "text": "".join(parts), "expanded": [
                    {"id": number + i, "text": part, "upos": "X", "feats": "A=B", "head": head, "deprel": "dep"}
                    for i, part in enumerate(parts)]}
            tokens.append(token)
        return {"text": text, "sentences": [{"id": 1, "text": text, "tokens": tokens}]}
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python whose `trankit` is the stand-in."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "trankit.py").write_text(STAND_IN)
    return python_with(tmp_path / "packages")


def python_with(packages: Path) -> str:
    program = packages.parent / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Weights (empty files) of Slovak, Serbian and Polish."""
    home = tmp_path / "cache" / "xlm-roberta-base"
    (home / "models--xlm-roberta-base").mkdir(parents=True)
    for name in ("slovak", "serbian", "polish"):
        (home / name).mkdir()
        for file in (".downloaded", ".vocabs.json", ".tokenizer.mdl", ".tagger.mdl", "_lemmatizer.pt", "_mwt_expander.pt"):
            (home / name / (name + file)).write_text(name + file)
    return tmp_path / "cache"


@pytest.fixture
def parser(python: str, cache: Path) -> Iterator[TrankitParser]:
    parser = TrankitParser(python, cache, gpu=False)
    yield parser
    parser.close()


def test_prints_of_the_package_do_not_disturb_the_protocol(parser: TrankitParser) -> None:
    one, blank, two = parser.parse(["Prší vonku", "  ", "Pada+m jutro"], "sk")
    assert [(word.id, word.text, word.upos, word.head, word.deprel, word.feats) for word in one[0]] == [
        (1, "Prší", "X", 0, "slovak", ""),
        (2, "vonku", "X", 1, "slovak", ""),
    ]
    assert blank == ()
    assert [(word.id, word.text, word.feats) for word in two[0]][:2] == [(1, "Pada", "A=B"), (2, "m", "A=B")]


def test_languages_take_turns_and_serbian_is_sent_in_latin_script(parser: TrankitParser) -> None:
    assert parser.parse(["a"], "sk")[0][0][0].deprel == "slovak"
    assert parser.parse(["киша"], "sr")[0][0][0].text == "kiša"
    assert parser.parse(["a"], "sk")[0][0][0].deprel == "slovak"


def test_a_failure_names_the_text_and_a_crash_the_last_words(parser: TrankitParser) -> None:
    with pytest.raises(EngineError, match="Trankit failed on 'please fail': ValueError: cannot parse this") as caught:
        parser.parse(["fine", "please fail"], "sk")
    assert caught.value.row == 1
    with pytest.raises(EngineError, match=r"worker ended with exit code 9; last output: .*out of memory"):
        parser.parse(["crash"], "sk")
    assert parser.parse(["goes on"], "sk")[0]  # a new worker


def test_missing_weights_environment_or_package(python: str, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no Trankit weights for czech: .*czech\.downloaded is missing; run .*Pipeline\('czech'"
    ):
        TrankitParser(python, cache).parse(["a"], "cs")
    (cache / "xlm-roberta-base" / "polish" / "polish_mwt_expander.pt").unlink()
    with pytest.raises(InputError, match=r"polish_mwt_expander\.pt is missing"):
        TrankitParser(python, cache).fingerprint("pl")
    with pytest.raises(InputError, match="not for 'fi'"):
        TrankitParser(python, cache).parse(["a"], "fi")
    with pytest.raises(InputError, match=r"cannot run /nowhere/python .*deploy/trankit-env\.sh"):
        TrankitParser("/nowhere/python", cache).parse(["a"], "sk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "trankit.py").write_text("raise ImportError('no torch')")
    with pytest.raises(InputError, match=r"has no working Trankit \(ImportError: no torch\)"):
        TrankitParser(python_with(tmp_path / "empty"), cache).parse(["a"], "sk")


def test_fingerprints_follow_the_weights(python: str, cache: Path) -> None:
    before = TrankitParser(python, cache).fingerprint("sk")
    assert before.startswith("trankit-xlm-roberta-base-slovak-")
    (cache / "xlm-roberta-base" / "slovak" / "slovak.tagger.mdl").write_text("retrained")
    assert TrankitParser(python, cache).fingerprint("sk") != before


def test_every_language_has_a_trankit_name() -> None:
    assert set(NAMES) == set(LANGUAGES)


def test_the_worker_ends_with_its_parser(python: str, cache: Path) -> None:
    parser = TrankitParser(python, cache)
    parser.parse(["a"], "sk")
    process = parser._process
    assert process is not None
    assert process.poll() is None
    del parser
    assert process.poll() == 0


# The real package


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(python, cache): a model trained on six Polish sentences in Trankit's own environment."""
    python = os.environ.get("EVALUATOR_TRANKIT_PYTHON")
    if not python:
        pytest.skip("no EVALUATOR_TRANKIT_PYTHON: make Trankit's environment with deploy/trankit-env.sh")
    cache = tmp_path_factory.mktemp("trankit") / "cache"
    cache.mkdir()
    program = Path(__file__).with_name("trankit_training.py")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-P", str(program), str(cache)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return python, cache


TEXTS = ["Upiekłam chleb.", "Siedziałem w domu.", "Lubię chleb.", "", "Upiekłem chleb. Siedziałam w domu."]
GENDERS = ["feminine", "masculine", "unknown", "unknown", "masculine"]


@pytest.mark.slow
def test_real_parses_with_multiword_tokens_and_a_second_run_from_the_cache(real: tuple[str, Path], tmp_path: Path) -> None:
    python, cache = real
    parser = TrankitParser(python, cache, gpu=False)
    detector = ud_detector("pl", CachedParser(parser, tmp_path))
    verdicts = detector.detect(TEXTS)
    assert [verdict.gender for verdict in verdicts] == GENDERS
    assert (verdicts[0].rule, verdicts[0].word) == ("auxiliary-head", "Upiekła")

    sentence = parser.parse(TEXTS[:1], "pl")[0][0]
    assert [(word.id, word.text, word.upos, word.head, word.deprel) for word in sentence] == [
        (1, "Upiekła", "VERB", 0, "root"),
        (2, "m", "AUX", 1, "aux:clitic"),
        (3, "chleb", "NOUN", 1, "obj"),
        (4, ".", "PUNCT", 1, "punct"),
    ]
    assert sentence[0].feature("Gender") == "Fem"
    assert len(parser.parse(TEXTS[4:], "pl")[0]) == 2  # sentences
    # another language in the same worker
    assert ud_detector("cs", parser).detect(TEXTS[:1])[0].gender == "feminine"
    parser.close()

    again = TrankitParser(python, cache, gpu=False)
    assert ud_detector("pl", CachedParser(again, tmp_path)).detect(TEXTS) == verdicts
    assert again._process is None  # nothing was parsed: no worker was started


@pytest.mark.slow
def test_the_command_line_with_real_trankit(real: tuple[str, Path], tmp_path: Path) -> None:
    python, cache = real
    options = [
        "--detector",
        "trankit",
        "--trankit-python",
        python,
        "--trankit-cache",
        str(cache),
        "--parse-cache",
        str(tmp_path),
    ]
    result = CliRunner().invoke(
        command, ["--language", "pl", "--explain", *options], input="Siedziałam w domu.\nLubię chleb.\n"
    )
    assert result.exit_code == 0, result.exception
    assert result.stdout == "feminine\tauxiliary-head\tSiedziała\nunknown\n"
    result = CliRunner().invoke(command, ["--language", "uk", *options], input="Я спав.\n")
    assert isinstance(result.exception, InputError)
    assert "no Trankit weights for ukrainian" in str(result.exception)
