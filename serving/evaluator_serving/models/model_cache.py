"""What is remembered of a model whose graphs are in the cache: the next command needs neither transformers nor torch for it.

Their imports take most of the seconds until a first answer, and all that is wanted of them then is a configuration, a
tokenizer and what the checkpoint can answer. `remember` writes that down, made with these versions of the libraries, and only
where what is read back is the same. Whatever isn't written down (a chat template's opening, a torch dtype) is asked of
transformers when it is wanted.
"""

import functools
import hashlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, remember_json, remembered_json
from evaluator_serving.models.config import load_config
from evaluator_serving.models.next_sentence import next_sentence
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import TEXTS, load_tokenizer

_FORMAT = 2
_FILE = "model.json"


class CachedConfig:
    """A transformers config as it was: plain values of the attributes that it had, anything else of the config itself.

    Another process gets the config itself.
    """

    def __init__(self, facts: dict[str, Any], path: Path, spec: str) -> None:
        self._values: dict[str, Any] = facts["values"]
        self._names = frozenset(facts["names"])
        self._text = CachedConfig(facts["text"], path, spec) if facts["text"] else None
        self._whole = functools.cache(lambda: _loaded(path, spec, text=facts["is_text"]))

    def get_text_config(self) -> "CachedConfig":
        """The part that is about text: the config itself, for models of nothing else."""
        return self._text or self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_values", "_names", "_whole"):  # what copying asks of an empty object
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        if name not in self._names:
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._whole(),)


def _itself(config: Any) -> Any:
    return config


def _loaded(path: Path, spec: str, *, text: bool) -> Any:
    config = load_config(path, spec)
    return config.get_text_config() if text else config


@dataclass(frozen=True)
class KnownTokenizer:
    """What encoders ask of a transformers tokenizer, over the `tokenizers` object inside it."""

    source: ModelSource
    backend_tokenizer: Any
    chat_template: str
    mask_token: str | None
    mask_token_id: int | None
    bos_token_id: int | None
    eos_token_id: int | None
    cls_token_id: int | None
    sep_token_id: int | None

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> Any:
        """The tokens' own writing."""
        one = self.backend_tokenizer.id_to_token
        return one(ids) if isinstance(ids, int) else [one(i) for i in ids]

    def apply_chat_template(self, *arguments: Any, **options: Any) -> Any:
        """transformers' own, loaded for the first chat."""
        return self._whole.apply_chat_template(*arguments, **options)

    @functools.cached_property
    def _whole(self) -> Any:
        return load_tokenizer(self.source)


_ROLES = tuple(field.name for field in fields(KnownTokenizer))[2:]


def known_model(revision: str, path: Path, spec: str) -> tuple[CachedConfig, frozenset[str]] | None:
    """Config and heads of the model of this revision in the folder `path`, where they are remembered."""
    content = _content(revision, path)
    return (CachedConfig(content["config"], path, spec), frozenset(content["heads"])) if content else None


def tokenizer_of(source: ModelSource) -> Any:
    """What encoders want of a model's tokenizer: the remembered one, else what `load_tokenizer` gives, and as it raises."""
    return _known_tokenizer(source) or load_tokenizer(source)


def _known_tokenizer(source: ModelSource) -> KnownTokenizer | None:
    from tokenizers import Tokenizer

    content = _content(source.revision, source.path)
    if source.code or not content:  # the same files may be remembered as transformers reads them by itself
        return None
    try:
        backend = Tokenizer.from_file(str(cached_folder(source.revision) / content["tokenizer"]))
    except Exception:  # the library has no types of its own; a file that is gone or damaged is one that isn't remembered
        return None
    return KnownTokenizer(source, backend, **content["roles"])


def remember(source: ModelSource) -> None:
    """Write down what there is to know of a model, where it isn't yet and what is read back is the same."""
    if isinstance(source.config, CachedConfig) or source.code or next_sentence(source.config) is not None:
        return
    if _content(source.revision, source.path):
        return
    folder = cached_folder(source.revision)
    try:
        made_with, tokenizer = _made_with(source.path), load_tokenizer(source)
        written = tokenizer.backend_tokenizer.to_str()
        name = f"tokenizer-{hashlib.sha256(written.encode()).hexdigest()[:16]}.json"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(written, "utf8")
    except Exception:  # no tokenizer here, one with parts written in Python, a cache that can't be written
        return
    if not _reads_back(tokenizer.backend_tokenizer, folder / name):
        return
    roles = {role: getattr(tokenizer, role, None) for role in _ROLES}
    content = {
        "made_with": made_with,
        "config": _facts(source.config),
        "heads": sorted(source.heads),
        "tokenizer": name,
        "roles": {**roles, "chat_template": str(roles["chat_template"] or "")},
    }
    remember_json(folder / _FILE, content)


def cached_folder(revision: str) -> Path:
    """Where a model's is kept."""
    return cache_dir() / "known" / revision.removeprefix("sha256:")[:40]


def _content(revision: str, path: Path) -> dict[str, Any] | None:
    content = remembered_json(cached_folder(revision) / _FILE)
    try:
        return content if content.get("made_with") == _made_with(path) else None
    except OSError:  # no config.json: told by whoever reads it
        return None


def _made_with(path: Path) -> dict[str, Any]:
    """What must be the same for what is remembered to hold."""
    config = hashlib.sha256((path / "config.json").read_bytes()).hexdigest()
    return {"format": _FORMAT, "config": config, **{name: version(name) for name in ("transformers", "tokenizers")}}


def _facts(config: Any, *, is_text: bool = False) -> dict[str, Any]:
    """Names of a config's attributes, and those values that JSON gives back as they were."""
    text = config.get_text_config()
    names = {name for name in dir(config) if not name.startswith("_")} | set(getattr(config, "attribute_map", {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that are going to be dropped
        values = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return {
        "names": sorted(values),
        "values": {name: value for name, value in values.items() if _is_plain(value)},
        "text": _facts(text, is_text=True) if text is not config else None,
        "is_text": is_text,
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _reads_back(backend: Any, file: Path) -> bool:
    """Whether the tokenizer in a file makes of every text what this one makes of it."""
    from tokenizers import Tokenizer

    again = Tokenizer.from_file(str(file))
    if again.get_vocab(with_added_tokens=True) != backend.get_vocab(with_added_tokens=True):
        return False
    same = again.get_added_tokens_decoder() == backend.get_added_tokens_decoder()
    return same and all(a == b for a, b in zip(_tokenizations(again), _tokenizations(backend), strict=True))


def _tokenizations(backend: Any) -> Iterable[Any]:
    asked = [(text, None) for text in TEXTS] + [(TEXTS[0], TEXTS[2])]
    before = backend.encode_special_tokens
    try:
        for control in (False, True):
            backend.encode_special_tokens = control
            for (text, second), special in ((pair, special) for pair in asked for special in (False, True)):
                try:
                    made = backend.encode(text, second, add_special_tokens=special)
                except Exception as error:  # no piece for a character: the same again, then
                    yield str(error)
                    continue
                yield made.ids, made.offsets, made.type_ids, made.special_tokens_mask, made.word_ids
                yield backend.decode(made.ids, skip_special_tokens=False)
    finally:
        backend.encode_special_tokens = before
