"""A model's tokenizer as the encoders need it: ids with character offsets, and the special tokens by their role."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluator_serving.errors import InputError
from evaluator_serving.models import ModelSource

SENTINEL = "<extra_id_0>"
"""Marks the first span that T5 and mT5 fill in."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenized text.

    Attributes:
        ids: token ids.
        offsets: half-open character ranges of the text, one a token; tokens of one character's bytes share its range.
        special: whether the tokenizer's template added the token (it is no part of the text).
        type_ids: token type ids, None for a model without any.
    """

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    type_ids: tuple[int, ...] | None

    def span(self, start: int, end: int) -> tuple[int, ...]:
        """Positions of the tokens that hold at least one of the characters [start, end)."""
        return tuple(
            i
            for i, ((a, b), special) in enumerate(zip(self.offsets, self.special, strict=True))
            if not special and max(a, start) < min(b, end)
        )


class TextTokenizer:
    """A fast tokenizer without truncation and padding, and what the encoders ask about its special tokens."""

    def __init__(self, source: ModelSource, tokenizer: Any) -> None:
        self._source = source
        self._tokenizer = tokenizer
        # The library object itself: the transformers wrapper around it takes most of the time for short texts.
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._types = (getattr(source.config, "type_vocab_size", 0) or 0) > 1
        self.config = source.config
        self.unk_id: int | None = tokenizer.unk_token_id
        self.front = self._leading_specials()
        self.chat_prefix = self._chat_prefix() if source.chat_template == "user" else ""

    @property
    def mask_id(self) -> int:
        """The mask token's id. Raises InputError where there is none."""
        return self._required(self._tokenizer.mask_token_id, "mask")

    @property
    def sentinel_id(self) -> int:
        """The id of T5's first span sentinel. Raises InputError where the tokenizer has none."""
        ids = self.ids(SENTINEL)
        return self._required(ids[0] if len(ids) == 1 and ids[0] != self.unk_id else None, f"sentinel ({SENTINEL})")

    @property
    def start_id(self) -> int:
        """What stands before a whole text: BOS, or the end-of-text token of a model without BOS, as in GPT-2."""
        bos = self._tokenizer.bos_token_id
        return self._required(bos if bos is not None else self._tokenizer.eos_token_id, "BOS or end-of-text")

    def tokens(self, text: str, second: str | None = None, *, special: bool = True) -> Tokens:
        """Tokenize a text or a pair of texts, with the model's special tokens if `special`."""
        encoding = self._backend.encode(text, second, add_special_tokens=special)
        types = tuple(encoding.type_ids) if self._types else None
        mask = tuple(map(bool, encoding.special_tokens_mask))
        return Tokens(tuple(encoding.ids), tuple(encoding.offsets), mask, types)

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text alone, without the model's special tokens."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def puts_space_in_front(self) -> bool:
        """Whether a text's first word looks as if a space stood before it, as with most SentencePiece tokenizers."""
        return self.ids("a")[-1:] == self.ids("a a")[-1:]

    def check_word(self, word: str, tokens: Sequence[int]) -> None:
        """Raises InputError where a word has no token or one that stands for anything unknown."""
        if not tokens:
            raise InputError(f"{word!r} yields no token")
        if self.unk_id in tokens:
            raise InputError(f"{word!r} contains what the tokenizer doesn't know (it becomes the unknown token)")

    def _required(self, token_id: int | None, role: str) -> int:
        if token_id is None:
            raise InputError(f"model {self._source.spec}: its tokenizer has no {role} token")
        return token_id

    def _leading_specials(self) -> tuple[int, ...]:
        """The ids that the tokenizer's template puts in front of a text (BOS, CLS), often none."""
        probe = self.tokens("a")
        return probe.ids[: probe.special.index(False)] if False in probe.special else ()

    def _chat_prefix(self) -> str:
        """An empty user turn and the opening of the assistant's, so that a text becomes what the assistant says."""
        try:
            turns = [{"role": "user", "content": ""}]
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:
            spec = self._source.spec
            raise InputError(f"model {spec}: its tokenizer has no chat template for {turns}: use `none`") from error


def check_text(text: str, what: str) -> None:
    """Raises InputError where a text is empty or blank."""
    if not text.strip():
        raise InputError(f"empty {what}")
