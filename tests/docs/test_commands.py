"""Every command that README and docs show runs as it stands, or is marked with the reason and at least valid."""

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

from evaluator.cli import cli
from tests.docs.pages import PAGES, ROOT, Shown, command_lines, inline, shown
from tests.tiny_models import tiny_model

OWN_TESTS = {"extending.md": "test_extending.py", "own-data.md": "test_own_data.py"}
"""Pages with files of their own: their test writes these down and executes the commands, which are valid here."""

SUBSTITUTED = {
    "$(python -m evaluator.demo)": ("gpt2",),
    "/tmp/smoke": ("runs/smoke",),
    "…": ("--model", "gpt2"),  # "and so on"
    "RUN…": ("RUN",),
    "FILES…": ("gpt2_template-0.txt", "gpt2_template-1.txt"),
}
"""Words that stand for others. All other names of files, models and runs are there in the working folder, under these names."""

FEW = ("--limit", "48")
"""Given to every run that names no limit: what is tested is the commands."""

MODELS = {
    "gpt2": "gpt2",
    "MODEL": "gpt2",
    "bert-base-uncased": "bert",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "llama",
    "utter-project/EuroLLM-1.7B": "llama",
    "my-lora-adapter": "gpt2",
    "run1/final": "gpt2",
    "run2/final": "llama",
}
"""Model to the tiny family that takes its place."""


def arguments(command: Shown) -> list[str]:
    """A command's words with those of the table put in."""
    words = [given for word in command.arguments for given in SUBSTITUTED.get(word, (word,))]
    if words[:1] == ["run"] and "--limit" not in words and "gest-mt" not in words:
        words += FEW
    return words


def invoke(words: Sequence[str]) -> Result:
    return CliRunner().invoke(cli, list(words))


def resolve(words: Sequence[str]) -> tuple[click.Context, list[str]]:
    """The command that is meant, and the words behind its name. Raises click's error where there is none."""
    context, rest = click.Context(cli, info_name="evaluator"), list(words)
    while isinstance(context.command, click.Group) and rest and not rest[0].startswith("--"):
        context.command.parse_args(context, rest)
        name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        context = click.Context(found, info_name=name, parent=context)
    return context, rest


def parse(words: Sequence[str]) -> None:
    """Raise click's error unless the options exist and have values that they take. A bucket's place is a folder here: a
    bucket would be asked."""
    context, rest = resolve([re.sub("^(s3|gs|az)://", "", word) for word in words])
    with context, contextlib.suppress(click.exceptions.Exit):  # --help
        context.command.parse_args(context, rest)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Iterator[Path]:
    """A working folder with all that the pages name."""
    place = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("EVALUATOR_DATA", str(data_dir))
        patch.setenv("OMP_NUM_THREADS", "1")
        made = {family: tiny_model(family, place / "tiny" / family) for family in {"gpt2", "bert"}}
        made["llama"] = tiny_model("llama", place / "tiny" / "llama", max_position_embeddings=512)
        for name, family in MODELS.items():
            shutil.copytree(made[family], place / name)
        (place / "DATA").symlink_to(data_dir)
        for name in ("FOLDER", "translations"):
            shutil.copytree(data_dir / "gest" / "translations" / "deepl" / "sk", place / name / "deepl" / "sk")
        (place / "examples").symlink_to(ROOT / "examples")
        for name, kind in (("my.csv", "samples"), ("my.toml", "definition")):
            (place / name).write_text(invoke(["new", kind]).stdout, encoding="utf8")
        (place / "SWEEP.toml").write_text('tasks = ["gest-demo"]\nout = "runs/sweep"\nlimit = 4\n[[models]]\nmodel = "gpt2"\n')
        rows = [(f"A {a} person lies.", f"A {b} person lies.", "kind") for a, b in (("bad", "good"), ("old", "new"))]
        pl.DataFrame(rows, schema=["sent_more", "sent_less", "bias_type"], orient="row").write_csv("crows_pairs_FR.csv")
        (place / "models.csv").write_text("model,parameters,family\nM,1000,tiny\n", encoding="utf8")
        (place / "sentences.txt").write_text("Bola som doma.\n", encoding="utf8")
        forms = [("x", "sk", f"I did {n}.", n, f"Ja som {n} bol.", f"Ja som {n} bola.") for n in range(1, 17)]
        names = ["translator", "language", "original", "stereotype", "male", "female"]
        pl.DataFrame(forms, schema=names, orient="row").write_csv("pairs.csv")
        turns = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        (place / "HuggingFaceTB/SmolLM2-135M-Instruct/chat_template.jinja").write_text(turns + "assistant: ")
        for template in (0, 1):
            (place / f"gpt2_template-{template}.txt").write_text("0.25\n" * 3565)
        done = invoke(["run", "gest", "--model", "M=gpt2", "--model", "M2=run2/final", "--out", "RUN", *FEW])
        assert done.exit_code == 0, done.output
        for name in ("all", "base", "tuned"):
            pairs = {"all": ["gpt2", "other=run2/final"], "base": ["base=gpt2"], "tuned": ["tuned=run2/final"]}[name]
            models = [word for model in pairs for word in ("--model", model)]
            done = invoke(["run", "gest", *models, "--out", f"runs/{name}", *FEW])
            assert done.exit_code == 0, done.output
        yield place


COMMANDS = [(page, list(shown(page))) for page in PAGES]
"""Each page with its commands."""


def test_pages_show_commands() -> None:
    """The rest isn't true of nothing."""
    found = [command for _, commands in COMMANDS for command in commands]
    assert len(found) > 60
    assert 3 < sum(bool(command.unexecuted) for command in found) < len(found) / 3


def test_every_command_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentences.txt").touch()  # click opens it
    (tmp_path / "wiki.jsonl").touch()
    for command in (command for _, commands in COMMANDS for command in commands):
        try:
            parse(arguments(command))
        except click.ClickException as error:
            pytest.fail(f"{command}: {error.format_message()}")


def _examples(command: click.Command, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands that the help of a command and of those below it shows; the commands' page repeats them."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from _examples(below, (*names, name))
    for line in re.sub(r"\\\n\s*", "", command.help or "").splitlines():
        for words in command_lines(line.strip()) if line.strip().startswith("evaluator") else ():
            if words[0] == "evaluator":
                yield tuple(words[1:])


def test_every_example_of_a_help_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki.jsonl").touch()
    examples = list(_examples(cli, ()))
    assert len(examples) > 40
    for words in examples:
        try:
            parse([given for word in words for given in SUBSTITUTED.get(word, (word,))])
        except click.ClickException as error:
            pytest.fail(f"evaluator {' '.join(words)}: {error.format_message()}")


def test_commands_within_a_text_name_what_exists() -> None:
    found = [command for page in PAGES for command in inline(page)]
    assert len(found) > 20
    for command in found:
        words = command.arguments[1:] if command.arguments[0].isupper() else command.arguments
        context, rest = resolve(words)
        known = {name for parameter in context.command.params for name in parameter.opts} | {"--help"}
        for word in rest:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, str(command)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page, commands in COMMANDS if commands], ids=lambda page: page.name)
def test_every_command_runs(page: Path, folder: Path) -> None:
    if page.name in OWN_TESTS:
        assert (Path(__file__).parent / OWN_TESTS[page.name]).is_file()
        return
    wrong = []
    for command in shown(page):
        if not command.unexecuted:
            done = invoke(arguments(command))
            fine = (0, 3) if "--fail-if" in command.arguments else (0,)
            if done.exit_code not in fine or ("> " in command.text and not done.stdout):
                wrong.append((str(command), done.exit_code, done.stderr[-500:], done.exception))
    assert not wrong
