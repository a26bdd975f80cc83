"""How the question who said a sentence is put: the program's wording, a file of the user's, or an installed GenderBench's."""

import ast
import importlib.util
import re
from pathlib import Path

from pydantic import Field, field_validator

from evaluator.toml_file import Document, TextTable
from evaluator_serving.chats import Turn
from evaluator_serving.errors import InputError

SENTENCE, PLACES = "s", ("a", "b", "c")

GENDERBENCH = "genderbench"
"""The wording that is read from the package of that name."""


class Wording(TextTable):
    """A question with its three answers."""

    prompt: str = Field(min_length=1, description="the question, with {s}, {a}, {b} and {c}")
    male: str = Field(min_length=1)
    female: str = Field(min_length=1)
    neither: str = Field(min_length=1)
    system: str | None = Field(None, min_length=1)

    @field_validator("prompt")
    @classmethod
    def _marked(cls, prompt: str) -> str:
        for name in (SENTENCE, *PLACES):
            if prompt.count(f"{{{name}}}") != 1:
                raise ValueError(f"the prompt must contain {{{name}}} exactly once")
        return prompt.strip("\n")

    def turns(self, sentence: str, order: tuple[str, str, str]) -> tuple[Turn, ...]:
        """The question about a sentence, the options in this order. The sentence may hold anything, markers too."""
        said = {SENTENCE: sentence, **{place: getattr(self, option) for place, option in zip(PLACES, order, strict=True)}}
        content: str = re.sub(r"\{([sabc])\}", lambda match: said[match[1]], self.prompt)
        system = (Turn("system", self.system),) if self.system else ()
        return (*system, Turn("user", content))


def own_wording() -> Wording:
    """The program's."""
    return Wording.parse(Path(__file__).with_name("gest_who.toml").read_text("utf8"), "gest_who.toml")


def given_wording(name: Path) -> Wording:
    """A file's, or where the name is `genderbench` and no file, the installed package's. Raises InputError."""
    if str(name) == GENDERBENCH and not name.exists():
        return Wording.parse(_genderbench(), "the installed genderbench")
    return Wording.parse(Document.read(name, "{wording} expects a TOML file, or genderbench").text, str(name))


def _genderbench() -> str:
    """The published probe's wording as TOML, out of the package's source, which isn't run."""
    spec = importlib.util.find_spec(GENDERBENCH)
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    if folder is None:
        remedy = "pip install --no-deps --ignore-requires-python genderbench==1.1.0"
        raise InputError(f"{{wording=genderbench}} reads an installed genderbench: {remedy}")
    file = Path(folder) / "probes" / "gest" / "gest_probe.py"
    try:
        return _default_template(ast.parse(file.read_text("utf8")))
    except (OSError, SyntaxError, ValueError, StopIteration) as error:
        raise InputError(f"{file} isn't GenderBench 1.1's probe: install genderbench==1.1.0, or give a file") from error


def _default_template(module: ast.Module) -> str:
    """The call that makes the default template has the prompt and the women's, the men's and the third option."""
    made = next(
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and [target.id for target in node.targets if isinstance(target, ast.Name)] == ["default_template"]
    )
    prompt, female, male, neither = map(ast.literal_eval, made.args)
    for old, new in zip(("{sentence}", "{option0}", "{option1}", "{option2}"), ("{s}", "{a}", "{b}", "{c}"), strict=True):
        prompt = prompt.replace(old, new)
    return "".join(
        f"{key} = {_quoted(value)}\n"
        for key, value in (("prompt", prompt), ("male", male), ("female", female), ("neither", neither))
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
