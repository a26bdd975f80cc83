"""A model's tokenizer."""

from collections.abc import Callable
from typing import Any

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.code import is_of_own_code, refused
from evaluator_serving.models.config import quiet
from evaluator_serving.models.source import ModelSource

TEXTS = (
    "The nurse said that she is late.",
    "",
    " ",
    "  two  spaces\tand\n a line ",
    "I'm sure we'll don't. N'est-ce pas?",
    "Ich weiß, daß Žofie přišla; зрадів, Ελλάδα, ħobża, 中文字, हिन्दी, עברית, \u200bé e\u0301 ﬁ 🙂👩\u200d🚀",
    "<s> [MASK] </s>",
    "<|im_start|>user\n<|endoftext|><pad>[SEP] <extra_id_0>",
    '"I am emotional.", the [unk] man',
    "1,000.50 % 2³ x_1",
    "\x00\ud7ff",
)
"""What two tokenizers have to make the same of to be one: all kinds of letters and spaces, names of control tokens."""


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer. Raises InputError where it can't be loaded or gives no character offsets."""
    from transformers import AutoTokenizer

    quiet()
    try:
        own_code = source.code is not None
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True, trust_remote_code=own_code)
    except (Exception, SystemExit) as error:
        if "trust_remote_code" in str(error):
            raise refused(source.path, source.spec) from error
        raise InputError(f"model {source.spec}: its tokenizer can't be loaded ({first_line(error)})") from error
    if is_of_own_code(tokenizer) and not own_code:  # a class that another model's code has told transformers of
        raise refused(source.path, source.spec)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"model {source.spec}: its tokenizer gives no character offsets; it needs a fast tokenizer")
    if own_code and is_of_own_code(tokenizer) and not all(map(_is_backends(tokenizer), TEXTS)):
        raise InputError(
            f"model {source.spec}: its tokenizer's own program makes other tokens than the tokenizer.json beside it, which is "
            "all that is read here; choose a model whose tokenizer transformers knows by itself"
        )
    return tokenizer


def _is_backends(tokenizer: Any) -> Callable[[str], bool]:
    """Whether what a tokenizer makes of a text is what the `tokenizers` object inside it does, which encoders ask."""

    def same(text: str) -> bool:
        return all(
            list(tokenizer(text, add_special_tokens=special)["input_ids"])
            == tokenizer.backend_tokenizer.encode(text, add_special_tokens=special).ids
            for special in (True, False)
        )

    return same
