"""What a model's transformers config says: reading it, the context, the sizes of the vocabularies."""

import math
from pathlib import Path
from typing import Any

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.code import is_of_own_code, refused

UNLIMITED = 1_000_000
"""Context of a model without absolute positions whose config names no limit."""

_OFFSET_POSITIONS = frozenset(
    {"camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"}
    | {"xlm-roberta-xl", "xmod"}
)
"""Model types that number positions from pad_token_id + 1, so that many of the position table's rows are never used."""


def quiet() -> None:
    """Keep transformers' progress bars and advice off stderr, where the program's own progress goes."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_config(path: Path, spec: str, *, own_code: bool = False) -> Any:
    """The config of a folder, by its repository's own code where that is allowed. Raises InputError where it can't be read."""
    from transformers import AutoConfig

    quiet()
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=own_code)
    except (Exception, SystemExit) as error:
        if "trust_remote_code" in str(error):
            raise refused(path, spec) from error
        raise InputError(f"model {spec}: its configuration can't be read ({first_line(error)})") from error
    if is_of_own_code(config) and not own_code:  # a type that another model's code has told transformers of
        raise refused(path, spec)
    return config


def context(config: Any) -> int:
    """Most tokens that one input may have."""
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length"):
        limit = getattr(text, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit - (text.pad_token_id or 0) - 1 if text.model_type in _OFFSET_POSITIONS else limit
    return UNLIMITED


def attention(config: Any) -> str | None:
    """The attention that transformers must be told to use, where its own choice leaves out what the config asks for.

    `sdpa` is handed the cap of the scores (Gemma 2, VaultGemma, T5Gemma) and ignores it: only the plain one caps them. Of
    PaliGemma's mask it drops what is causal, which a text without an image is from its first token on.
    """
    parts = (config, *(getattr(config, name, None) for name in ("text_config", "encoder", "decoder")))
    capped = any(getattr(part, "attn_logit_softcapping", None) for part in parts)
    return "eager" if capped or config.model_type == "paligemma" else None


_CORRECTED = {
    "deepseek_v32": "index_topk",
    "glm_moe_dsa": "index_topk",
    "axk2": "index_topk",
    "hy_v4": "index_topk",
    "llama4_text": "floor_scale",
}
"""Model types whose numbers could be wrong in the transformers engine until 2026-11, with the setting that was disregarded."""


def corrected(config: Any) -> dict[str, Any]:
    """The setting that older answers of the transformers engine may lack, with its value; empty for nearly all models."""
    text = getattr(config, "text_config", None) or config
    name = _CORRECTED.get(getattr(text, "model_type", ""))
    return {name: getattr(text, name, None)} if name else {}


def chooses(config: Any) -> bool:
    """Whether some layers look at so many of the earlier tokens, chosen by scores, or at so many blocks of them.

    Scores that are equal, zeros above all, are chosen among by where they stand in the whole input.
    """
    text = config.get_text_config()
    return any(isinstance(getattr(text, name, None), int) for name in ("index_topk", "index_topk_blocks"))


def rotary(config: Any) -> list[dict[str, Any]]:
    """How positions are rotated: one entry for the whole text model, or one for each kind of layer."""
    given = getattr(config.get_text_config(), "rope_parameters", None) or {}
    return [entry for entry in given.values() if isinstance(entry, dict)] or [given]


def rotary_turn(config: Any) -> int | None:
    """Most tokens of a sequence whose positions are rotated by the first of two sets of frequencies; None where one is all.

    A LongRoPE model has two (Phi-3's of 128k tokens), and transformers takes one of them for a whole batch, by its longest row.
    """
    turns = [entry.get("original_max_position_embeddings") for entry in rotary(config) if entry.get("rope_type") == "longrope"]
    return min((turn for turn in turns if isinstance(turn, int)), default=None)


_WINDOWS = ("sliding_window", "attention_window", "window_size", "attention_chunk_size")
"""Names under which configs say how far back some of a model's layers look."""


def window(config: Any) -> float:
    """Longest sequence that fits in every layer's attention window; infinite for a model without any."""
    text = config.get_text_config()
    mixed = getattr(text, "is_heterogeneous", False)  # then a whole config has no value of what differs between layers
    layers = [text.per_layer_config[i] for i in range(text.num_hidden_layers)] if mixed else [text]
    windows = [getattr(layer, name, None) for layer in layers for name in _WINDOWS]
    return min((w for w in windows if isinstance(w, int) and w > 0), default=math.inf)


def padding(config: Any) -> int | None:
    """The id that a model is padded with; None where its config names none that it has an embedding for (old Llamas': -1)."""
    text = config.get_text_config()
    named, (size, _) = getattr(text, "pad_token_id", None), vocabulary(config)
    return named if isinstance(named, int) and named >= 0 and (size is None or named < size) else None


def vocabulary(config: Any) -> tuple[int | None, int | None]:
    """Token ids that have embeddings, in the encoder and in the decoder (equal but for a few); None for a model without any.

    The config is enough: weights of another size than it says aren't loaded. More embeddings than tokens are no fault.
    """
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None)
    return size, getattr(text, "decoder_vocab_size", None) or size
