"""A task's parameters: one frozen model beside the task. All interfaces are made from it.

    class NightShiftParameters(Parameters):
        shift: Literal["night", "late"] = Field(default="night", description="which shift is asked about")
        words: Annotated[CommaList | None, REPORT] = Field(default=None, description="only these words")

`shift` is then a flag of `evaluator run`, a key of SWEEP.toml, an argument of `evaluator.run` and a part of the definition that
run.json keeps. `words` does not change what a model is asked: it is chosen for a report (`evaluator report --set words=a,b`).

Every field has a default and a description. A field with `Field(exclude=True)` is no part of the definition: a file of samples,
which run.json knows by its sha256.
"""

import hashlib
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic import ValidationInfo as Info
from pydantic.fields import FieldInfo

from evaluator.text_file import read_text
from evaluator.toml_file import in_words
from evaluator_serving.errors import InputError


class Parameters(BaseModel):
    """No parameters; base of those of tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def __str__(self) -> str:
        """What differs from the defaults: `case = orig`."""
        return ", ".join(f"{key} = {_text(value)}" for key, value in self.model_dump(exclude_defaults=True).items())


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, slots=True)
class _Report:
    """See REPORT."""


REPORT = _Report()
"""Marks a parameter that is chosen for a report and does not change what a model is asked."""


@dataclass(frozen=True, slots=True)
class With:
    """Marks a parameter that says something of another one, and is used only where that one is given."""

    other: str


def request_parameters(model: type[Parameters]) -> dict[str, FieldInfo]:
    """Parameters that are chosen before a model is asked."""
    return {key: field for key, field in model.model_fields.items() if REPORT not in field.metadata}


def report_parameters(model: type[Parameters]) -> dict[str, FieldInfo]:
    """Parameters that are chosen for a report."""
    return {key: field for key, field in model.model_fields.items() if REPORT in field.metadata}


def select_parameters(model: type[Parameters], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that are parameters of this model, less those of a parameter that isn't given (see `With`)."""
    fields = request_parameters(model)
    return {
        key: value
        for key, value in values.items()
        if key in fields and all(mark.other in values for mark in fields[key].metadata if isinstance(mark, With))
    }


# --- types of several tasks' parameters ------------------------------------------------------------------------------


def _local(path: Path) -> Path:
    if found := re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(path)):
        raise ValueError(f"{found[1]}:// is a URL: give a file or folder of this machine")
    return path


LocalPath = Annotated[Path, AfterValidator(_local)]
"""A file or folder of this machine."""

CommaList = Annotated[tuple[str, ...], BeforeValidator(lambda v: tuple(v.split(",")) if isinstance(v, str) else v)]
"""A list that is written with commas between its items."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file of the user's: its text is a part of the definition, its name only says where a mistake is."""

    text: str
    where: str = member(compare=False)


def from_record(info: Info) -> bool:
    """Whether a validator is given what a definition kept, not what a user gave."""
    return bool(info.context and info.context.get("stored"))


def _text_file(value: Any, info: Info) -> Any:
    if isinstance(value, TextFile):
        return value
    if from_record(info):
        return TextFile(value, "the run's definition")
    return TextFile(read_text(_local(Path(value)), wanted=f"{{{info.field_name}}} expects a TOML file")[0], str(value))


GivenText = Annotated[TextFile, BeforeValidator(_text_file), PlainSerializer(lambda file: file.text)]
"""A TOML file, given by its path and kept by its text."""


def encoding_field() -> Any:
    """Field of the encoding of a user's files."""
    about = "Encoding of custom samples or translations, if not UTF-8 or UTF-16 with a byte-order mark: cp1250, …"
    return Field(default=None, exclude=True, description=about)


class OwnSamples(Parameters):
    """Of tasks that take a file of samples."""

    samples: LocalPath | None = Field(default=None, exclude=True, description="Custom sentences or pairs (CSV).")
    encoding: Annotated[str | None, With("samples")] = encoding_field()


class Answering(Parameters):
    """Of tasks that ask chats: see `evaluator_serving.chats.Chat`."""

    answers: int = Field(
        default=1, ge=1, description="Number of answers to each question; more than one needs a temperature above 0."
    )
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Sampling temperature; 0: greedy.")
    max_tokens: int = Field(
        default=32, ge=1, description="Maximum number of tokens of an answer; reasoning models need thousands."
    )
    seed: int = Field(default=0, ge=0, description="Seed of sampled answers and of fewer than six orders.")


# --- mistakes --------------------------------------------------------------------------------------------------------

Spelling = Callable[[str, FieldInfo | None, str | None], str]
"""How an interface writes a parameter, and a value for it."""

_NAMED = re.compile(r"\{(\w+)(?:=([^{}]*))?\}")


def as_argument(key: str, field: FieldInfo | None, value: str | None) -> str:
    """`way`, `way='text'`."""
    return key if value is None else f"{key}={value if value.isdecimal() else repr(value)}"


def as_key(key: str, field: FieldInfo | None, value: str | None) -> str:
    """`way`, `way = "text"`."""
    return key if value is None else f"{key} = {value if value.isdecimal() else json.dumps(value)}"


def as_flag(key: str, field: FieldInfo | None, value: str | None) -> str:
    """`--way`, `--way text`. A list's flag is repeated, one item each, and has no s at its end."""
    name = key.removesuffix("s") if field and is_list(field) else key
    return " ".join([f"--{name.replace('_', '-')}", *([value] if value is not None else [])])


class ParameterError(InputError):
    """What is wrong with a task's parameters.

    Its messages name parameters as `{way}` and `{way=text}`, which each interface writes in its own way (`spelled`); as a
    string they are Python's arguments.
    """

    def __init__(self, messages: tuple[str, ...], fields: Mapping[str, FieldInfo], task: str = "") -> None:
        self.messages, self.fields, self.task = messages, fields, task
        super().__init__(self.spelled(as_argument))

    def spelled(self, spelling: Spelling) -> str:
        """All of it in a line."""
        text = "; ".join(self.written(message, spelling) for message in self.messages)
        return f"{self.task}: {text}" if self.task and self.messages[0].startswith("{") else text

    def written(self, message: str, spelling: Spelling) -> str:
        """A message with its parameters as an interface writes them."""

        def one(found: re.Match[str]) -> str:
            return spelling(found[1], self.fields[found[1]], found[2]) if found[1] in self.fields else found[0]

        return _NAMED.sub(one, message)

    def about(self) -> Iterator[tuple[str | None, str]]:
        """Each message as keys of a file, with the parameter that it is about, which it then doesn't begin with."""
        for message in self.messages:
            key = next((found[1] for found in _NAMED.finditer(message) if found[1] in self.fields), None)
            yield key, self.written(message.removeprefix(f"{{{key}}}: "), as_key)


def validate(model: type[P], values: Mapping[str, Any], task: str = "", *, strict: bool = False) -> P:
    """The parameters with these values. Raises ParameterError; `strict`: a number isn't taken from a text."""
    try:
        if strict:
            return model.model_validate_json(json.dumps(values, default=str), strict=True)
        return model(**values)
    except ValidationError as error:
        found = [f"{{{entry['loc'][0]}}}: {in_words(entry)}" if entry["loc"] else in_words(entry) for entry in error.errors()]
        raise ParameterError(tuple(dict.fromkeys(found)), model.model_fields, task) from None
    except InputError as error:
        raise ParameterError((str(error),), model.model_fields, task) from error


def non_defaults(parameters: Parameters) -> dict[str, Any]:
    """Parameters that are part of a task's name: those of its requests that are not the default."""
    fields = {key: field for key, field in request_parameters(type(parameters)).items() if not field.exclude}
    return {key: value for key, field in fields.items() if (value := getattr(parameters, key)) != field.default}


def suffix(parameters: Parameters) -> str:
    """The part of a task's name for these parameters: `-shift-late`; empty for the defaults."""
    return "".join(f"-{key}-{mark(value)}" for key, value in non_defaults(parameters).items())


def mark(value: Any) -> str:
    """A value in a task's name; a digest if it is long or has other characters."""
    text = value.text if isinstance(value, TextFile) else "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if re.fullmatch(r"[\w.+-]{1,40}", text) else hashlib.sha256(text.encode()).hexdigest()[:8]


def definition(parameters: Parameters) -> str:
    """What run.json keeps: the parameters that decide what a model is asked, as JSON."""
    values = parameters.model_dump(mode="json", exclude_none=True, include=set(request_parameters(type(parameters))))
    return json.dumps(values, ensure_ascii=False)


def from_definition(model: type[P], values: Mapping[str, Any]) -> P:
    """The parameters that a definition keeps."""
    return model.model_validate_json(json.dumps(values), context={"stored": True})


# --- parameters in words ---------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _plain(annotation: Any) -> Any:
    """A type without what it is annotated with and without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        (one,) = [part for part in get_args(annotation) if part is not type(None)]
        return _plain(one)
    return annotation


def is_list(field: FieldInfo) -> bool:
    """Whether a parameter is a list."""
    return get_origin(_plain(field.annotation)) is tuple


def kind_of(field: FieldInfo) -> str:
    """A parameter's type in a word, or its choices."""
    plain = _plain(field.annotation)
    if get_origin(plain) is Literal:
        return "|".join(map(str, get_args(plain)))
    names = {int: "INTEGER", float: "FLOAT", Path: "PATH", TextFile: "FILE", bool: "BOOLEAN"}
    return names.get(plain, "TEXT")


def limits(field: FieldInfo) -> str:
    """A number's range: `1<=x<=6`; empty where it has none."""
    least, most = (next((getattr(m, key) for m in field.metadata if hasattr(m, key)), None) for key in ("ge", "le"))
    if least is None and most is None:
        return ""
    if most is None:
        return f"x>={least:g}"
    return f"{'' if least is None else f'{least:g}<='}x<={most:g}"


def default_of(field: FieldInfo) -> str:
    """A parameter's default in words; empty where there is none to speak of."""
    return "" if field.default in (None, ()) else _text(field.default)


def describe_settings(model: type[Parameters]) -> Iterator[tuple[str, str]]:
    """Each parameter of a report and what it is for, with its default where it has one."""
    for key, field in report_parameters(model).items():
        default = f" (default {default_of(field)})" if default_of(field) else ""
        yield key, f"{field.description or ''}{default}".strip()


# --- of a report -----------------------------------------------------------------------------------------------------


def parse_settings(models: Mapping[str, type[Parameters]], values: Mapping[str, str]) -> dict[str, Parameters]:
    """Task name → its parameters for a report, of those of the tasks (name → its model) that have any of these keys.

    Raises InputError for a key that none of them has, and for a value that isn't of the parameter's type.
    """
    known = dict.fromkeys(key for model in models.values() for key in report_parameters(model))
    for key in values:
        if key not in known:
            choose = f"choose from {', '.join(known)}" if known else f"{', '.join(models) or 'the run'} has none"
            raise InputError(f"--set {key}: no task has this report setting: {choose}")
    found = {}
    for task, model in models.items():
        if mine := {key: value for key, value in values.items() if key in report_parameters(model)}:
            found[task] = validate(model, mine, task)
    return found
