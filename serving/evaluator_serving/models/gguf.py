"""Conversion of a GGUF model into a folder of float32 safetensors with a tokenizer that keeps its BOS."""

import os
import shutil
from pathlib import Path
from typing import Any


def convert(file: Path, folder: Path) -> None:
    """Dequantize `file` into `folder`, which appears whole or not at all. Raises whatever reading the file raises."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scratch = folder.with_name(f".{folder.name}-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
        restore_bos(tokenizer, uses_bos(file))
        tokenizer.save_pretrained(scratch)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, trust_remote_code=False
        )
        # Without these two lines transformers tries to save the weights in GGUF's quantization and fails.
        model.hf_quantizer = None  # type: ignore[assignment]
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(scratch)
        if not folder.exists():  # another process may have been faster
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def uses_bos(file: Path) -> bool:
    """Whether the model was trained with BOS in front: the file says so, or its tokenizer is a SentencePiece one."""
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    flag, family = fields.get("tokenizer.ggml.add_bos_token"), fields.get("tokenizer.ggml.model")
    return bool(flag.contents()) if flag else family is not None and family.contents() == "llama"


def restore_bos(tokenizer: Any, wanted: bool) -> None:
    """Put BOS in front of every text again where the model uses one and the converted tokenizer has lost it.

    Gemma's conversion drops it, and without BOS Gemma's outputs are noise.
    """
    from tokenizers.processors import Sequence, TemplateProcessing

    bos, bos_id = tokenizer.bos_token, tokenizer.bos_token_id
    backend = tokenizer.backend_tokenizer
    if not wanted or bos is None or bos_id in backend.encode("a").ids:
        return
    template = TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bos_id)])
    backend.post_processor = Sequence([backend.post_processor, template]) if backend.post_processor else template
