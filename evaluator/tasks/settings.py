"""A task's own settings: choices for a report that only it has, as a typed object that its class declares.

    class MySettings(Settings):
        words: CommaList | None = Field(None, description="only these, with commas between them")

They come from the command line as text (`evaluator report RUN --set KEY=VALUE`), go to every task shown that has the key, and
are told in the report wherever they differ from their defaults.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from evaluator_serving.errors import InputError


class Settings(BaseModel):
    """No settings; base of those of tasks. Every field has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __str__(self) -> str:
        """What differs from the defaults: `case = orig`."""
        return ", ".join(f"{key} = {_text(value)}" for key, value in self.model_dump(exclude_defaults=True).items())


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


CommaList = Annotated[tuple[str, ...], BeforeValidator(lambda v: tuple(v.split(",")) if isinstance(v, str) else v)]
"""A list that is written with commas between its items."""


def parse_settings(types: Mapping[str, type[Settings]], values: Mapping[str, str]) -> dict[str, Settings]:
    """Task name → its settings, for those of the tasks (name → the type that it declares) that have any of these keys.

    Raises InputError for a key that none of them has, and for a value that isn't of the setting's type.
    """
    known = dict.fromkeys(key for settings in types.values() for key in settings.model_fields)
    for key in values:
        if key not in known:
            choose = f"choose among {', '.join(known)}" if known else f"{', '.join(types) or 'the run'} has none"
            raise InputError(f"no task has a report setting {key!r}: {choose}")
    found = {}
    for task, settings in types.items():
        mine = {key: value for key, value in values.items() if key in settings.model_fields}
        if mine:
            try:
                found[task] = settings(**mine)
            except ValidationError as error:
                first = error.errors()[0]
                key = str(first["loc"][0]) if first["loc"] else next(iter(mine))
                reason = first["msg"].removeprefix("Value error, ")
                raise InputError(f"{task}: setting {key}={mine.get(key, '')!r}: {reason}") from None
    return found


def described(settings: type[Settings]) -> Iterator[tuple[str, str]]:
    """Each setting and what it is for, with its default where it has one."""
    for key, setting in settings.model_fields.items():
        default = f" (default {_text(setting.default)})" if setting.default is not None else ""
        yield key, f"{setting.description or ''}{default}".strip()
