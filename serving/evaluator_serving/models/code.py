"""Programs that a model's own repository brings (`auto_map` of its configurations): which they are, what they are known by.

transformers and vLLM run them where they are told to trust them, which the user says of one model and no other. What may run
is the files beside the model's configuration and nothing else: of another repository no commit is named.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evaluator_serving.cache import content_hash
from evaluator_serving.errors import InputError, first_line
from evaluator_serving.locks import held
from evaluator_serving.models.source import OwnCode
from evaluator_serving.weights.hub import CODE_PLACES

_NAMED_IN = ("config.json", "tokenizer_config.json")
_MODULES = "transformers_modules"
"""The package that transformers makes of such files."""


def own_code(folder: Path, spec: str, *, allowed: bool, fetch: Callable[[], object] = lambda: None) -> OwnCode | None:
    """The programs of a model whose configuration is in `folder`; None where it names none, or they aren't allowed.

    `fetch` brings the files there. They are laid out for import. Raises InputError where one is missing or another
    repository's.
    """
    named = _named(folder) if allowed else ()
    if not named:
        return None
    if strangers := [name for name in named if not _is_own(name)]:
        raise InputError(f"model {spec}: {_of_others(strangers)}")
    fetch()
    files = [file for place in CODE_PLACES for file in sorted(folder.glob(f"{place}*.py"))]
    wanted = list(dict.fromkeys(map(_file, named)))
    if missing := [name for name in wanted if not (folder / name).is_file()]:
        raise InputError(f"model {spec}: {missing[0]} is missing in {folder} (auto_map names it): copy it there")
    _lay_out(folder, wanted, spec)
    return OwnCode(tuple(str(file.relative_to(folder)) for file in files), content_hash(files))


def refused(folder: Path, spec: str) -> InputError:
    """What to say of a model that needs programs which aren't allowed for it."""
    named = _named(folder)
    if strangers := [name for name in named if not _is_own(name)]:
        return InputError(f"model {spec}: {_of_others(strangers)}")
    if not named:
        return InputError(f"model {spec}: transformers does not support its type; choose another model")
    files = ", ".join(dict.fromkeys(map(_file, named)))
    return InputError(
        f"model {spec}: it needs code from its repository ({files}), which runs only if allowed: "
        "read it and, if you trust it, allow it for this model (--trust-remote-code of run, probe and bench; in "
        "SWEEP.toml trust_remote_code = true; for a translator SPEC?trust-remote-code; not with export and train-nsp), or "
        "choose a model that needs no remote code"
    )


def brings_head(folder: Path) -> bool:
    """Whether a configuration names a program for a language model's head."""
    found = _auto_map(folder / _NAMED_IN[0])
    return isinstance(found, dict) and any(key in HEADS for key in found)


def is_of_own_code(made: Any) -> bool:
    """Whether the class of something that transformers made is of a model's own programs, this one's or another's."""
    return type(made).__module__.partition(".")[0] == _MODULES


HEADS = {
    "AutoModelForCausalLM": "causal",
    "AutoModelForMaskedLM": "masked",
    "AutoModelForSeq2SeqLM": "seq2seq",
    "AutoModelForNextSentencePrediction": "pair",
}
"""Keys of `auto_map` by the head that their class has."""


def _named(folder: Path) -> tuple[str, ...]:
    """What the configurations name, `file.Class` or `repository--file.Class`, in their order."""
    return tuple(dict.fromkeys(name for file in _NAMED_IN for name in _texts(_auto_map(folder / file))))


def _auto_map(file: Path) -> Any:
    try:
        content = json.loads(file.read_text("utf8"))
    except (OSError, ValueError):  # told by whoever needs it
        return None
    return content.get("auto_map") if isinstance(content, dict) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _is_own(name: str) -> bool:
    return re.fullmatch(r"\w+\.\w+", name) is not None


def _file(name: str) -> str:
    return f"{name.partition('.')[0]}.py"


def _of_others(names: list[str]) -> str:
    return (
        f"it needs code from another repository ({', '.join(names)}), which is never run: copy the files beside "
        "its config.json in a local folder and name them in auto_map as FILE.CLASS, or choose a model that "
        "transformers supports itself"
    )


def _lay_out(folder: Path, names: list[str], spec: str) -> None:
    """Copy the files to where transformers imports them from, one process at a time: it would import a half-written one."""
    from transformers.dynamic_module_utils import get_cached_module_file
    from transformers.utils.hub import HF_MODULES_CACHE

    place = Path(HF_MODULES_CACHE)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with held(place / ".evaluator.lock", wait=True):
            for name in names:
                with contextlib.suppress(ImportError, SyntaxError):  # told by whoever imports it, if anybody does
                    get_cached_module_file(str(folder), name, local_files_only=True)
    except OSError as error:
        raise InputError(
            f"model {spec}: its code can't be copied to {place} ({first_line(error)}): set HF_MODULES_CACHE to a folder "
            "that can be written"
        ) from error
