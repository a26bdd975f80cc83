"""`evaluator gender`: one line in, one line out."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli.gender import command
from evaluator_serving.errors import InputError


def run(*arguments: str, text: str = "") -> str:
    result = CliRunner().invoke(command, list(arguments), input=text)
    if result.exception:
        raise result.exception
    return result.stdout


def test_one_line_a_sentence_blank_lines_and_a_missing_last_newline() -> None:
    assert run("--language", "sk", text="Bola som tam.\n\nPrší.\nBol som tam.") == "feminine\nunknown\nunknown\nmasculine\n"
    assert run("--language", "sk", text="") == ""


def test_explain_adds_rule_word_and_conflict() -> None:
    out = run("--language", "hr", "--explain", text="Bila sam tamo.\nKiša pada.\nMislila sam da znam put, ali zalutao sam.\n")
    assert out.splitlines() == [
        "feminine\tauxiliary-participle\tBila",
        "unknown",
        "feminine\tauxiliary-participle\tMislila\tconflict",
    ]


def test_serbian_in_either_script() -> None:
    assert run("--language", "sr", text="Била сам тамо.\nBio sam tamo.\n") == "feminine\nmasculine\n"


def test_more_lines_than_a_batch_keep_their_order() -> None:
    lines = ["Bol som." if number % 3 else "Bola som." for number in range(1000)]
    out = run("--language", "sk", text="\n".join(lines)).splitlines()
    assert out == ["masculine" if number % 3 else "feminine" for number in range(1000)]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("Bola som.\n\nBol som.\n", "utf-8-sig", newline="\r\n")
    assert run("--language", "sk", str(path)) == "feminine\nunknown\nmasculine\n"


def test_parses_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "parses.conllu"
    rows = ["1\tBola\t_\tVERB\t_\tGender=Fem|Number=Sing\t0\troot\t_\t_", "2\tsom\t_\tAUX\t_\tPerson=1\t1\taux\t_\t_"]
    path.write_text("# text = Bola som\n" + "\n".join(rows) + "\n", encoding="utf-8")
    out = run("--language", "sk", "--detector", "conllu", "--parses", str(path), "--explain", text="Bola som\n")
    assert out == "feminine\tauxiliary-head\tBola\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--language", "de"], "no gender rules for language 'de'"),
        (["--language", "sk", "--detector", "conllu"], "needs --parses FILE"),
        (["--language", "sk", "--detector", "trankit"], "needs --trankit-python"),
    ],
)
def test_bad_input(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVALUATOR_TRANKIT_PYTHON", raising=False)
    with pytest.raises(InputError, match=message):
        run(*arguments, text="Bola som.\n")


def test_exit_code_and_one_line_on_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evaluator", "gender", "--language", "xx"], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, evaluator.gender as g; g.rules_detector('sk').detect(['Bola som.'])\n"
        "heavy = {'torch', 'transformers', 'polars', 'numpy', 'trankit', 'ray'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
