"""From a model spec to files on disk: hub id, id@revision or local folder (safetensors or GGUF)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A resolved model: everything known about it before its weights are loaded.

    Attributes:
        spec: the spec as the user gave it (hub id, id@revision, folder).
        path: folder with its files.
        revision: hub commit, or `sha256:…` over the content of a local folder's weights, config and tokenizer.
        heads: what the checkpoint can answer: `masked`, `causal`, `seq2seq`, `pair` (a BERT may have two).
        config: the transformers config.
        context: most tokens of one input, special tokens included.
        gguf_file: name of the GGUF file in `path`, or None.
        chat_template: `none` or `user` (the prompt becomes the beginning of the assistant's turn).
    """

    spec: str
    path: Path
    revision: str
    heads: frozenset[str]
    config: Any
    context: int
    gguf_file: str | None = None
    chat_template: str = "none"
