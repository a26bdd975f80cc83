"""Tokenizers in the cache: the `tokenizers` object and the roles of its tokens, without transformers.

A tokenizer is kept where what is read back makes the same tokens. Mostly that is the model's own tokenizer.json; where
transformers changes it or makes the tokenizer of other files, a copy of the result is kept. A chat template is rendered by
transformers.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from evaluator_serving.cache import remember_json, remembered_json
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import FILE, TEXTS, Tokenizers, load_tokenizer, load_tokenizers, record_of


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

    def get_chat_template(self) -> Any:
        """As transformers'."""
        return self._whole.get_chat_template()

    def apply_chat_template(self, *arguments: Any, **options: Any) -> Any:
        """transformers' own, loaded for the first chat."""
        return self._whole.apply_chat_template(*arguments, **options)

    @functools.cached_property
    def _whole(self) -> Any:
        return load_tokenizer(self.source)


_ROLES = tuple(field.name for field in fields(KnownTokenizer))[2:]


def tokenizer_of(source: ModelSource) -> Any:
    """What encoders want of a model's tokenizer: the known one, else what `load_tokenizer` gives, and as it raises."""
    return _known(source) or loaded_tokenizers(source).used


def loaded_tokenizers(source: ModelSource) -> Tokenizers:
    """See `load_tokenizers`; the tokenizer is known afterwards."""
    found = load_tokenizers(source)
    _remember(source, found)
    return found


def _known(source: ModelSource) -> KnownTokenizer | None:
    if source.code:  # the same files may be known as transformers reads them by itself
        return None
    record = record_of(source.path)
    content = remembered_json(record)
    try:
        backend = _read(record.with_name(content["file"]) if content["file"] else source.path / FILE)
    except Exception:  # the library has no types of its own; nothing is kept, or a file is gone or damaged
        return None
    return KnownTokenizer(source, backend, **content["roles"])


def _remember(source: ModelSource, found: Tokenizers) -> None:
    """Keep the tokenizer that is used for a model, where what is read back is the same."""
    if source.code:
        return
    record, used, copy = record_of(source.path), found.used, ""
    try:
        written = used.backend_tokenizer.to_str()
        again = _read(source.path / FILE) if (source.path / FILE).is_file() else None
        if again is None or again.to_str() != written:
            copy = f"{record.stem}.tokenizer"
            record.parent.mkdir(parents=True, exist_ok=True)
            record.with_name(copy).write_text(written, "utf8")
            again = _read(record.with_name(copy))
    except Exception:  # parts written in Python, a cache that can't be written
        return
    if not _alike(again, used.backend_tokenizer):
        return
    roles = {role: getattr(used, role, None) for role in _ROLES}
    roles["chat_template"] = str(roles["chat_template"] or "")
    remember_json(record, {**remembered_json(record), "file": copy, "roles": roles})


def _read(file: Path) -> Any:
    """The `tokenizers` object that a file describes, uncut and unpadded."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(file))
    backend.no_truncation()
    backend.no_padding()
    return backend


def _alike(again: Any, backend: Any) -> bool:
    """Whether two tokenizers make the same of every text."""
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
