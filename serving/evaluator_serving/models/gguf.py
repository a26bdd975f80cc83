"""Conversion of a GGUF file into a folder of float32 safetensors and a tokenizer, or a refusal that says what would be lost."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator_serving.models.gguf_config import LLAMA3_FACTORS, LONG_FACTORS, UnusableGgufError, attributes, weights
from evaluator_serving.models.gguf_tokenizer import check, corrected, ends, is_only_respaced, uses_bos

CONVERSION = 3
"""Version of what is made of a file; a folder of another version isn't used."""

_CORRECTED = "gguf-corrected.json"
"""In the folder: what differs from what transformers alone makes of the file, where anything does."""


def is_corrected(folder: Path) -> bool:
    """Whether a converted model isn't the one that transformers alone makes of the file."""
    return (folder / _CORRECTED).is_file()


def convert(file: Path, folder: Path) -> None:
    """Dequantize `file` into `folder`, which appears whole or not at all.

    Raises UnusableGgufError for a file whose model would come out another one, and whatever reading the file raises.
    """
    from gguf import GGUFReader

    scratch = folder.with_name(f".{folder.name}-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        reader = GGUFReader(file)
        meta = {key: field.contents() for key, field in reader.fields.items()}
        differs = [*_save_model(file, reader, meta, scratch), *_save_tokenizer(file, meta, scratch)]
        if differs:
            (scratch / _CORRECTED).write_text(json.dumps(sorted(differs)), "utf8")
        if not folder.exists():  # another process may have been faster
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _save_model(file: Path, reader: Any, meta: Mapping[str, Any], scratch: Path) -> list[str]:
    """Returns the attributes of the configuration that transformers has otherwise."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

    shapes = {tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    factors = {t.name: t.data.ravel().tolist() for t in reader.tensors if t.name in (LLAMA3_FACTORS, *LONG_FACTORS)}
    wanted = attributes(meta, shapes, factors)
    check(meta, wanted["vocab_size"])
    config: Any = AutoConfig.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
    if config.model_type == "mistral":  # transformers' guess from a name, and it has no tensors' names for it
        config = LlamaConfig(bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id)
    differs = [name for name, value in wanted.items() if getattr(config, name, None) != value]
    for name in differs:
        setattr(config, name, wanted[name])
    if (getattr(config, "pad_token_id", None) or 0) >= wanted["vocab_size"]:
        config.pad_token_id = None  # the class's default, for a larger vocabulary
    made: Any = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        config=config,
        dtype=torch.float32,
        trust_remote_code=False,
        output_loading_info=True,
    )
    model, loaded = made
    _check_whole(model, loaded, sum(math.prod(shapes[name]) for name in weights(meta, shapes)))
    # Without these two lines transformers tries to save the weights in GGUF's quantization and fails.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config.eos_token_id = ends(meta) or None
    model.save_pretrained(scratch)
    return differs


def _check_whole(model: Any, loaded: Mapping[str, Any], numbers: int) -> None:
    """Raise UnusableGgufError unless every weight comes from the file, and every number in the file went into a weight."""
    if missing := sorted(loaded["missing_keys"]):
        raise UnusableGgufError(f"the file lacks the weights of {missing[0]}")
    own = {id(tensor): tensor.numel() for tensor in model.state_dict(keep_vars=True).values()}
    if sum(own.values()) != numbers:
        raise UnusableGgufError(f"of its {numbers:,} numbers {sum(own.values()):,} are weights of a {type(model).__name__}")


def _save_tokenizer(file: Path, meta: Mapping[str, Any], scratch: Path) -> list[str]:
    """Returns `["tokenizer"]` where transformers' own makes other tokens or may do so."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
    made = json.loads(tokenizer.backend_tokenizer.to_str())
    right = corrected(made, meta)
    if right != made:
        named = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ("bos", "eos", "unk", "pad")}
        roles = {role: token for role, token in named.items() if token in meta["tokenizer.ggml.tokens"]}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(right)), chat_template=tokenizer.chat_template, **roles
        )
    restore_bos(tokenizer, uses_bos(meta))
    tokenizer.save_pretrained(scratch)
    if not is_only_respaced(made, right):
        return ["tokenizer"] if right != made else []
    # Named by the class that has the other spaces: answers from before stay where it makes the same tokens (see file_tokens).
    described = scratch / "tokenizer_config.json"
    described.write_text(json.dumps(json.loads(described.read_text("utf8")) | {"tokenizer_class": "LlamaTokenizer"}), "utf8")
    return []


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
