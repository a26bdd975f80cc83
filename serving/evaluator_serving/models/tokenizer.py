"""A model's tokenizer: the one that its tokenizer.json describes, where it has one.

transformers makes a tokenizer of the class that tokenizer_config.json or the model's type names. Many of these classes take
the vocabulary from tokenizer.json and build a normalizer, a pre-tokenizer and special tokens of their own around it. Where the
result is not the file's tokenizer, the file is used: it was saved with the model, whatever the class is called.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, content_hash, remember_json, remembered_json
from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.code import is_of_own_code, refused
from evaluator_serving.models.config import quiet
from evaluator_serving.models.model_cache import made_with
from evaluator_serving.models.source import ModelSource
from evaluator_serving.weights.hub import CONFIG_FILES

FILE = "tokenizer.json"
"""What describes a whole tokenizer."""

SENTENCES = (
    "The nurse said that she is late.",
    "I'm sure we'll don't. N'est-ce pas?",
    "Ich weiß, daß Žofie přišla; зрадів, Ελλάδα, ħobża, 中文字, हिन्दी, עברית, \u200bé e\u0301 ﬁ 🙂👩\u200d🚀",
    '"I am emotional.", the [unk] man',
    "In 2024: 1,000.50 % 2³ x_1",
)
"""What sentences of data sets look like."""

TEXTS = (
    *SENTENCES,
    "",
    " ",
    "  two  spaces\tand\n a line ",
    "<s> [MASK] </s>",
    "<|im_start|>user\n<|endoftext|><pad>[SEP] <extra_id_0>",
    "\x00\ud7ff",
)
"""What two tokenizers have to make the same of to be one: all kinds of letters and spaces, names of control tokens."""

Text = str | tuple[str, str]
"""A text, or a pair of texts."""


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """What a model's files give.

    Attributes:
        used: the tokenizer, of transformers.
        instead_of: the name of transformers' class for these files, where it makes another tokenizer or none.
        other: that other tokenizer; None where the class fails or gives no character offsets.
    """

    used: Any
    instead_of: str | None = None
    other: Any = None

    @property
    def translating(self) -> Any:
        """The tokenizer for translations. A class that puts language codes around a text puts them around the file's tokens."""
        if not hasattr(self.other, "src_lang"):
            return self.used
        self.other._tokenizer = self.used.backend_tokenizer
        for role in self.used.SPECIAL_TOKENS_ATTRIBUTES:
            setattr(self.other, role, getattr(self.used, role))
        return self.other


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer, which makes the tokens of its tokenizer.json where there is one, uncut, unpadded, undrawn.

    Raises InputError where it can't be loaded or gives no character offsets.
    """
    return load_tokenizers(source).used


def load_tokenizers(source: ModelSource) -> Tokenizers:
    """The model's tokenizer, and the one that transformers' class makes instead. Raises InputError as `load_tokenizer`."""
    found = _load(source)
    for tokenizer in (found.used, found.other):
        if tokenizer is not None:
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
            if getattr(tokenizer.backend_tokenizer.model, "dropout", None):  # of BPE, for training: tokens drawn at random
                tokenizer.backend_tokenizer.model.dropout = None
            if tokenizer.chat_template is None:
                tokenizer.chat_template = _processor_template(source.path)
    return found


def record_of(folder: Path) -> Path:
    """Where the cache keeps what is known of a folder's tokenizer: by its files, the libraries and this package's code."""
    files = {file for pattern in CONFIG_FILES for file in folder.glob(pattern) if file.is_file()}
    return cache_dir() / "tokenizers" / f"{content_hash(files).removeprefix('sha256:')[:32]}-{made_with()}.json"


def is_known_alike(folder: Path) -> bool:
    """Whether transformers' class was seen to make the file's tokenizer, with these versions of the libraries."""
    return bool(remembered_json(record_of(folder)).get("alike"))


def tokens_of(backend: Any, texts: Sequence[Text], *, special: bool = True, control: bool = False) -> list[Any]:
    """What a `tokenizers` object makes of texts and pairs of texts; of those that it can't read, what it raises.

    Ids, offsets, which tokens the template adds (if `special`), and type ids. A control token's name is text unless `control`.
    """
    backend.encode_special_tokens = not control

    def fields(encoding: Any) -> tuple[Any, ...]:
        return encoding.ids, encoding.offsets, encoding.special_tokens_mask, encoding.type_ids

    def alone(text: Text) -> tuple[Any, ...]:
        try:
            return fields(backend.encode(*((text,) if isinstance(text, str) else text), add_special_tokens=special))
        except Exception as error:
            return (str(error),)

    try:
        return [fields(encoding) for encoding in backend.encode_batch(list(texts), add_special_tokens=special)]
    except Exception:  # the library has no types of its own, and doesn't say which of the texts it was
        return list(map(alone, texts))


def _load(source: ModelSource) -> Tokenizers:
    made = _of_class(source)
    error = made if isinstance(made, InputError) else None
    if error is None and not getattr(made, "is_fast", False):
        error = InputError(f"model {source.spec}: its tokenizer gives no character offsets; it needs a fast tokenizer")
    own_code = is_of_own_code(made)
    if error and (own_code or not (source.path / FILE).is_file()):
        raise error
    if own_code:
        _check_own_code(source, made)
    if own_code or not (source.path / FILE).is_file() or (error is None and is_known_alike(source.path)):
        return Tokenizers(made)
    try:
        described = _of_file(source.path)
    except Exception as wrong:
        raise InputError(f"model {source.spec}: its tokenizer can't be loaded ({FILE}: {first_line(wrong)})") from wrong
    if error:
        return Tokenizers(described, _class_name(source.path) if made is error else type(made).__name__)
    if _written(made.backend_tokenizer) == _written(described.backend_tokenizer):
        record = record_of(source.path)
        remember_json(record, {**remembered_json(record), "alike": True})
        return Tokenizers(made)
    if _lacks_prefix(source.path, described) and _begins_as_pieces(source.path, made):
        return Tokenizers(made)
    _name_roles(described, made)
    return Tokenizers(described, type(made).__name__, made)


def _of_class(source: ModelSource) -> Any:
    """What transformers makes of a model's files by itself, or the InputError that says why it makes nothing.

    Raises InputError where that takes a program of the model's own that isn't allowed.
    """
    from transformers import AutoTokenizer

    quiet()
    allowed = source.code is not None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True, trust_remote_code=allowed)
    except (Exception, SystemExit) as error:
        if "trust_remote_code" in str(error):
            raise refused(source.path, source.spec) from error
        return InputError(f"model {source.spec}: its tokenizer can't be loaded ({first_line(error)})")
    if is_of_own_code(tokenizer) and not allowed:  # a class that another model's code has told transformers of
        raise refused(source.path, source.spec)
    return tokenizer


def _of_file(folder: Path) -> Any:
    """The tokenizer that tokenizer.json describes, with the special tokens and the chat template of the files beside it.

    Tokens that only those files name are added. How a token of tokenizer.json is matched is what tokenizer.json says.
    """
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    backend = made.backend_tokenizer
    loaded = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for described in json.loads((folder / FILE).read_text("utf8")).get("added_tokens", ()):
        token = loaded.get(described["content"])  # an empty one is left out
        flags = {flag: described[flag] for flag in ("single_word", "lstrip", "rstrip", "normalized") if flag in described}
        if token and any(getattr(token, flag) != value for flag, value in flags.items()):
            backend.add_tokens([AddedToken(token.content, special=token.special, **flags)])
    return made


def _lacks_prefix(folder: Path, described: Any) -> bool:
    """Whether a file that was converted from a SentencePiece model may have lost the space in front of a text.

    transformers 4 wrote it so where the configuration has `"add_prefix_space": null`, whatever the model says.
    """
    splitting = json.loads(described.backend_tokenizer.to_str())["pre_tokenizer"] or {}
    if (splitting.get("type"), splitting.get("prepend_scheme")) != ("Metaspace", "never"):
        return False
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf8"))
    except OSError:  # a model may have none
        return False
    return settings.get("add_prefix_space", False) is None


def _begins_as_pieces(folder: Path, tokenizer: Any) -> bool:
    """Whether a tokenizer begins sentences with the pieces of the SentencePiece model beside it; without one it doesn't."""
    from sentencepiece import SentencePieceProcessor

    backend = tokenizer.backend_tokenizer
    for file in sorted(folder.glob("*.model")):
        pieces = SentencePieceProcessor(model_file=str(file))
        wanted = [pieces.id_to_piece(ids[0]) for ids in pieces.encode(list(SENTENCES))]
        made = backend.encode_batch(list(SENTENCES), add_special_tokens=False)
        return wanted == [backend.id_to_token(encoding.ids[0]) for encoding in made]
    return False


def _name_roles(described: Any, made: Any) -> None:
    """Give the file's tokenizer those special tokens that only the class names, where the file has them."""
    vocabulary = described.get_vocab()
    for role in described.SPECIAL_TOKENS_ATTRIBUTES:
        if getattr(described, role) is None and getattr(made, role, None) in vocabulary:
            setattr(described, role, getattr(made, role))


def _check_own_code(source: ModelSource, tokenizer: Any) -> None:
    """Raise InputError where a program of the model's own makes other tokens than its tokenizer.json."""
    from tokenizers import Tokenizer

    backend, file = tokenizer.backend_tokenizer, source.path / FILE
    described = Tokenizer.from_file(str(file)) if file.is_file() else backend
    if not all(map(_is_backends(tokenizer), TEXTS)) or tokens_of(backend, TEXTS) != tokens_of(described, TEXTS):
        raise InputError(
            f"model {source.spec}: its remote tokenizer code gives other tokens than the tokenizer.json beside it, which is "
            "used here; choose a model whose tokenizer needs no remote code"
        )


def _processor_template(folder: Path) -> str | None:
    """The chat template that a multimodal model's processor has in place of its tokenizer; None where there is none."""
    for name in ("chat_template.json", "processor_config.json"):
        try:
            found = json.loads((folder / name).read_text("utf8")).get("chat_template")
        except (OSError, ValueError, AttributeError):  # transformers, too, does without
            continue
        if isinstance(found, str):
            return found
    return None


def _is_backends(tokenizer: Any) -> Callable[[str], bool]:
    """Whether what a tokenizer makes of a text is what the `tokenizers` object inside it does, which encoders ask."""

    def same(text: str) -> bool:
        return all(
            list(tokenizer(text, add_special_tokens=special)["input_ids"])
            == tokenizer.backend_tokenizer.encode(text, add_special_tokens=special).ids
            for special in (True, False)
        )

    return same


def _class_name(folder: Path) -> str:
    """What a tokenizer's configuration calls its class."""
    try:
        return str(json.loads((folder / "tokenizer_config.json").read_text("utf8"))["tokenizer_class"])
    except (OSError, ValueError, KeyError, TypeError):
        return "tokenizer class for its type"


def _written(backend: Any) -> Any:
    """A `tokenizers` object as JSON, but for its limits of length: equal ones make the same of every text."""
    return {key: value for key, value in json.loads(backend.to_str()).items() if key not in ("truncation", "padding")}
