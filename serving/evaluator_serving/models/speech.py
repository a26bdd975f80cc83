"""How a generative model's tokens become text, and which of them end its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from evaluator_serving.chats import Finish, Reply
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Row


@dataclass(frozen=True, slots=True)
class Speech:
    """A model's way to speak. `ends`: ids of the tokens that end an answer."""

    ends: tuple[int, ...]
    tokenizer: Any

    @classmethod
    def of(cls, source: ModelSource) -> Self:
        """Of a resolved model: what its generation config names, its config and its tokenizer."""
        from transformers import GenerationConfig

        tokenizer = load_tokenizer(source)
        try:
            named = GenerationConfig.from_pretrained(source.path, local_files_only=True).eos_token_id
        except OSError:
            named = None
        found = (named, getattr(source.config.get_text_config(), "eos_token_id", None), tokenizer.eos_token_id)
        ends = [i for one in found for i in (one if isinstance(one, list | tuple) else [one]) if i is not None]
        return cls(tuple(dict.fromkeys(map(int, ends))), tokenizer)

    def reply(self, row: Row, generated: Sequence[int]) -> Reply:
        """The reply that generated tokens are; what follows the first end token is left out."""
        ids = [int(i) for i in generated]
        end = next((at for at, i in enumerate(ids) if i in self.ends), None)
        finish: Finish = "length" if end is None else "stop"
        said = tuple(ids[:end])
        text = self.tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(str(text), finish, said, len(row.ids), len(ids) if end is None else end + 1)
