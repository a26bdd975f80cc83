"""Configurations and heads of models in the cache: a command that knows a model imports neither transformers nor torch for it.

Their imports take most of the seconds until a first answer, and all that is wanted of them then is what a configuration says
and what the checkpoint can answer. Both are kept as transformers and the modules of this package gave them. Whatever is not
plain data (a torch dtype) comes from transformers when it is read.
"""

import functools
import hashlib
import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, remember_json, remembered_json
from evaluator_serving.models.config import load_config
from evaluator_serving.models.next_sentence import next_sentence

_FILE = "model.json"


class CachedConfig:
    """A transformers config: its plain values, and the config itself for all else, made of the same config.json.

    It is plain data for another process or machine.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._text = CachedConfig(facts["text"]) if facts["text"] else None

    def get_text_config(self) -> "CachedConfig":
        """The part that is about text: the config itself, for models of nothing else."""
        return self._text or self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_facts", "_text"):  # what copying asks of an empty object
            raise AttributeError(name)
        values: dict[str, Any] = self._facts["values"]
        if name in values:
            return values[name]
        if name not in self._facts["names"]:
            raise AttributeError(name)
        return getattr(self._whole, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedConfig) and self._facts == other._facts

    __hash__ = None  # type: ignore[assignment]  # as transformers' configs

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedConfig, (self._facts,)

    @functools.cached_property
    def _whole(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(self._facts["file"], "utf8")
            config = load_config(Path(folder), folder)
        return config.get_text_config() if self._facts["is_text"] else config


def known_model(revision: str, path: Path) -> tuple[CachedConfig, frozenset[str]] | None:
    """Config and heads of the model of this revision in the folder `path`, if the cache has them."""
    content = remembered_json(cached_folder(revision) / _FILE)
    try:
        known = content.get("made_with") == made_with() and content["config"]["file"] == _written(path)
    except (OSError, ValueError, KeyError, TypeError):  # no config.json: whoever reads it says so; an older cache
        return None
    return (CachedConfig(content["config"]), frozenset(content["heads"])) if known else None


def remember(revision: str, path: Path, config: Any, heads: frozenset[str]) -> Any:
    """Keep a model's config and heads for later commands. Returns the config as they will read it.

    A config that transformers reads from another file than config.json is not kept, nor that of a next-sentence classifier,
    which is loaded by the config itself.
    """
    if next_sentence(config) is not None or getattr(config, "configuration_files", None):
        return config
    facts = json.loads(json.dumps(_facts(config, _written(path))))
    remember_json(cached_folder(revision) / _FILE, {"made_with": made_with(), "config": facts, "heads": sorted(heads)})
    return CachedConfig(facts)


def cached_folder(revision: str) -> Path:
    """Where the cache keeps what it knows of a model."""
    return cache_dir() / "known" / revision.removeprefix("sha256:")[:40]


def made_with() -> str:
    """What must be the same for cached descriptions of models to hold: the libraries' versions, and this package's code."""
    return "-".join((version("transformers"), version("tokenizers"), _code()))


@functools.cache
def _code() -> str:
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        code.update(file.read_bytes())
    return code.hexdigest()[:12]


def _written(path: Path) -> str:
    return (path / "config.json").read_text("utf8")


def _facts(config: Any, file: str, *, is_text: bool = False) -> dict[str, Any]:
    """Names of a config's attributes, and those values that JSON gives back as they were."""
    text = config.get_text_config()
    names = {name for name in dir(config) if not name.startswith("_")} | set(getattr(config, "attribute_map", {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that are going to be dropped
        values = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return {
        "file": file,
        "names": sorted(values),
        "values": {name: value for name, value in values.items() if _is_plain(value)},
        "text": _facts(text, file, is_text=True) if text is not config else None,
        "is_text": is_text,
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)
