"""The answer cache: nothing is asked twice, a kill loses at most one batch, money is spent only when allowed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from evaluator.answer_cache import AnswerCache
from evaluator.translate.base import make_translator
from evaluator.translate.cache import CachedTranslator
from evaluator.translate.folder import FolderTranslator
from evaluator_serving.budget import Budget
from evaluator_serving.errors import InputError


class Echo:
    """Answers LANGUAGE:TEXT and remembers what it was asked."""

    def __init__(self, price: float = 0.0, batch: int = 2, **parameters: str) -> None:
        self.system = "echo"
        self.price = price
        self.batch = batch
        self.parameters: Mapping[str, str] = parameters
        self.asked: list[str] = []

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        self.asked += texts
        return [f"{language}:{text}" for text in texts]


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    echo = Echo()
    assert CachedTranslator(echo, AnswerCache(path)).translate(["a", "b", "a", "c"], "sk") == ["sk:a", "sk:b", "sk:a", "sk:c"]
    assert echo.asked == ["a", "b", "c"]
    again = Echo()
    assert CachedTranslator(again, AnswerCache(path)).translate(["c", "d"], "sk") == ["sk:c", "sk:d"]
    assert again.asked == ["d"]
    assert len(AnswerCache(path)) == 4


def test_system_language_and_parameters_are_part_of_the_key(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.jsonl")
    CachedTranslator(Echo(), cache).translate(["a"], "sk")
    for translator, language in ((Echo(beams="4"), "sk"), (Echo(), "pl")):
        CachedTranslator(translator, cache).translate(["a"], language)
        assert translator.asked == ["a"]


def test_a_torn_line_is_asked_again_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    CachedTranslator(Echo(), AnswerCache(path)).translate(["a", "b"], "sk")
    path.write_bytes(path.read_bytes()[:-10])
    echo = Echo()
    assert CachedTranslator(echo, AnswerCache(path)).translate(["a", "b"], "sk") == ["sk:a", "sk:b"]
    assert echo.asked == ["b"]
    assert len(AnswerCache(path)) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from evaluator.answer_cache import AnswerCache
from evaluator.translate.cache import CachedTranslator
class Deadly:
    system, parameters, price, batch = "echo", {}, 0.0, 2
    calls = 0
    def translate(self, texts, language):
        self.calls += 1
        if self.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return [f"{language}:{text}" for text in texts]
CachedTranslator(Deadly(), AnswerCache(Path(sys.argv[1]))).translate([str(i) for i in range(10)], "sk")
"""


def test_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    echo = Echo()
    texts = [str(i) for i in range(10)]
    assert CachedTranslator(echo, AnswerCache(path)).translate(texts, "sk") == [f"sk:{text}" for text in texts]
    assert echo.asked == texts[4:]


def test_offline_the_cache_alone_serves(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.jsonl")
    CachedTranslator(Echo(), cache).translate(["a"], "sk")
    echo = Echo()
    offline = CachedTranslator(echo, cache, offline=True)
    assert offline.translate(["a"], "sk") == ["sk:a"]
    with pytest.raises(InputError, match=r"1 texts have no echo translation to sk.*'b'"):
        offline.translate(["a", "b"], "sk")
    assert echo.asked == []


def test_money(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.jsonl")
    lines: list[str] = []
    dear = Echo(price=1e6)  # a dollar a character
    with pytest.raises(InputError, match=r"about \$4\.00 for 4 characters, more than the limit of \$3\.00"):
        CachedTranslator(dear, cache, budget=Budget(3), report=lines.append).translate(["ab", "cd"], "sk")
    assert dear.asked == []
    assert lines == ["echo: 4 characters in 2 texts, about $4.00"]
    budget = CachedTranslator(dear, cache, budget=Budget(5))
    budget.translate(["ab", "cd"], "sk")
    budget.translate(["ab", "cd"], "sk")  # nothing to pay
    assert budget.budget.spent == 4
    with pytest.raises(InputError, match=r"about \$6\.00"):
        budget.translate(["ef"], "sk")


def write(folder: Path, text: str) -> Path:
    (folder / "sk").mkdir(parents=True)
    (folder / "sk" / "translations.csv").write_text(text)
    return folder


def test_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "deepl", 'from,to\n"I cook, you eat.",Ja varím.\nYes.,Áno.\n')
    translator = make_translator(f"folder:{folder}")
    assert translator.system == "deepl"
    assert translator.translate(["Yes.", "I cook, you eat."], "sk") == ["Áno.", "Ja varím."]
    with pytest.raises(InputError, match=r"lacks 1 of 2 texts, the first 'No\.'"):
        translator.translate(["Yes.", "No."], "sk")
    with pytest.raises(InputError, match="no such file"):
        translator.translate(["Yes."], "pl")


@pytest.mark.parametrize(
    ("text", "message"), [("a,b\n", "no column 'from' in line 1"), ("from,to\nx,y\nx,z\n", "line 3.*second")]
)
def test_wrong_folders(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FolderTranslator(write(tmp_path / "x", text)).translate(["x"], "sk")


@pytest.mark.parametrize("spec", ["nllb", "model:", "deepl:x", "folder"])
def test_unknown_translators(spec: str) -> None:
    with pytest.raises(InputError, match="unknown translator"):
        make_translator(spec)
