"""A model's tokenizer."""

from typing import Any

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.config import quiet
from evaluator_serving.models.source import ModelSource


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer. Raises InputError where it can't be loaded or gives no character offsets."""
    from transformers import AutoTokenizer

    quiet()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise InputError(f"model {source.spec}: its tokenizer can't be loaded ({first_line(error)})") from error
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"model {source.spec}: its tokenizer gives no character offsets; it needs a fast tokenizer")
    return tokenizer
