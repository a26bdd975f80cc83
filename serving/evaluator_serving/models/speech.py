"""How a generative model's tokens become text, and which of them end its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from evaluator_serving.chats import Finish, Reply
from evaluator_serving.models.decoding import authors_config
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Row
from evaluator_serving.thoughts import OPENING, is_tag, opening


@dataclass(frozen=True, slots=True)
class Speech:
    """A model's way to speak.

    Attributes:
        ends: ids of the tokens that end an answer.
        tokenizer: makes text of tokens.
        tags: control tokens around thoughts, which stay in a reply's text: id to text.
    """

    ends: tuple[int, ...]
    tokenizer: Any
    tags: Mapping[int, str]

    @classmethod
    def of(cls, source: ModelSource) -> Self:
        """Of a resolved model: what its generation config names, its config and its tokenizer."""
        tokenizer = load_tokenizer(source)
        found = (
            authors_config(source).eos_token_id,
            getattr(source.config.get_text_config(), "eos_token_id", None),
            tokenizer.eos_token_id,
        )
        ends = [i for one in found for i in (one if isinstance(one, list | tuple) else [one]) if i is not None]
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder().items()
        tags = {i: token.content for i, token in added if token.special and is_tag(token.content)}
        return cls(tuple(dict.fromkeys(map(int, ends))), tokenizer, tags)

    def reply(self, row: Row, generated: Sequence[int]) -> Reply:
        """The reply that generated tokens are; what follows the first end token is left out."""
        ids = [int(i) for i in generated]
        end = next((at for at, i in enumerate(ids) if i in self.ends), None)
        finish: Finish = "length" if end is None else "stop"
        said = tuple(ids[:end])
        begun = opening(self._text(row.ids[-OPENING:], control=True))
        return Reply(begun + self._said(said), finish, said, len(row.ids), len(ids) if end is None else end + 1)

    def _said(self, ids: Sequence[int]) -> str:
        parts = ((tag, list(part)) for tag, part in groupby(ids, self.tags.__contains__))
        return "".join("".join(self.tags[i] for i in part) if tag else self._text(part) for tag, part in parts)

    def _text(self, ids: Sequence[int], *, control: bool = False) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=not control, clean_up_tokenization_spaces=False))
