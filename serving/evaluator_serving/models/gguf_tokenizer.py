"""A GGUF file's tokenizer: what transformers' conversion makes of it, corrected by what the file says.

transformers builds a tokenizer from the vocabulary and skips most of the other keys: it splits text as GPT-2 does where it
doesn't know the name in `tokenizer.ggml.pre`, and leaves out merging rules, prefix spaces and the start of the text. The rules
by name are those of the tokenizers that llama.cpp gives these names to. Normalizers aren't in a GGUF file; none is added.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

from evaluator_serving.models.gguf_config import UnusableGgufError

_PREFIX = "tokenizer.ggml."
_HARMLESS = re.compile(
    r"tokenizer\.(chat_templates?(\..+)?|huggingface\.json|ggml\.(\w+_token_ids?|token_type_count|merges|scores|model|tokens"
    r"|token_type|pre))"
)
"""Keys that are read elsewhere, or name tokens for uses that no question here has."""

_OFF = ("add_eos_token", "add_sep_token", "remove_extra_whitespaces")
"""Flags that can't be followed: they must be off."""

_CONTROL, _USER_DEFINED = 3, 4

_END_TOKENS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<end_of_utterance>"),
        *("<|endoftext|>", "<|end_of_text|>", "<EOT>"),
    }
)
"""Tokens that end an answer whatever the keys say, as in llama.cpp: many files lack the key for the end of a turn."""


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _bytes(*, words: bool) -> dict[str, Any]:
    """Bytes as GPT-2 writes them, of its own `words` or of the pieces that there are."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": words}


def _pieces(*patterns: str) -> list[dict[str, Any]]:
    return [*map(_split, patterns), _bytes(words=False)]


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _ENDS
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _ENDS
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _ENDS
_SEED = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + _ENDS
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(after: str, digits: str) -> str:
    """Words cut where a lower-case letter is followed by an upper-case one."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{_UPPER}*{_LOWER}+{after}|{start}{_UPPER}+{_LOWER}*{after}|{digits}" + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _ENDS
    )


_TEKKEN = _cased("", r"\p{N}")
_GPT4O = _cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}")
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _ENDS,
)
_DIGITS = {"type": "Digits", "individual_digits": True}
_PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
_FALCON = [_PUNCTUATION, _bytes(words=True), {"type": "Digits", "individual_digits": False}, _split("[0-9][0-9][0-9]")]

_WHOLE = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
_NAMED: Mapping[str, list[dict[str, Any]]] = {
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum": [_bytes(words=True)],
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": [_DIGITS, _bytes(words=True)],
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe glm4 chatglm-bpe": _pieces(
        _LLAMA3
    ),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": _pieces(_QWEN2),
    "qwen35": _pieces(_QWEN35),
    "seed-coder": _pieces(_SEED),
    "tekken": _pieces(_TEKKEN),
    "gpt-4o llama4 kanana2 talkie minimax-m2": _pieces(_GPT4O),
    "deepseek-v3 hunyuan-dense joyai-llm": _pieces(*_DEEPSEEK3),
    "deepseek-coder": [
        *map(_split, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+")),
        _DIGITS,
        _bytes(words=False),
    ],
    "bloom poro-chat gpt3-finnish": _pieces(_BLOOM),
    "falcon": _FALCON,
}
PRE_TOKENIZERS: Mapping[str, list[dict[str, Any]]] = {name: steps for names, steps in _NAMED.items() for name in names.split()}
"""How text is cut before bytes are merged, by `tokenizer.ggml.pre`: steps as `tokenizer.json` has them."""

_KEPT = frozenset([*_WHOLE.split(), "tekken"])
"""Of these, those whose pieces that are tokens stay whole, whatever the merges say, and whose texts begin with BOS."""


def check(meta: Mapping[str, Any], rows: int) -> None:
    """Raise UnusableGgufError for a tokenizer that can't be made as the file says; the model has embeddings of `rows` ids."""
    family = meta.get("tokenizer.ggml.model")
    if family not in ("gpt2", "llama"):
        raise UnusableGgufError(f"tokenizer.ggml.model is {family!r}, and only 'gpt2' and 'llama' are read from GGUF")
    pre = meta.get("tokenizer.ggml.pre")
    if family == "gpt2" and pre not in PRE_TOKENIZERS:
        problem = f"tokenizer.ggml.pre is {pre!r}" if pre else "the key tokenizer.ggml.pre is missing"
        raise UnusableGgufError(f"{problem}, so the pre-tokenization is unknown")
    for key in ("tokens", "token_type", "merges" if family == "gpt2" else "scores"):
        if f"{_PREFIX}{key}" not in meta:
            raise UnusableGgufError(f"the key {_PREFIX}{key} is missing")
    tokens = meta["tokenizer.ggml.tokens"]
    if len(set(tokens)) < len(tokens) or len(tokens) > rows:
        raise UnusableGgufError(
            f"tokenizer.ggml.tokens has {len(tokens)} tokens, {len(set(tokens))} of them different, for {rows} embeddings"
        )
    flags = [*_OFF, *(["add_space_prefix"] if family == "gpt2" else [])]
    for key in (f"{_PREFIX}{flag}" for flag in flags):
        if meta.get(key):
            raise UnusableGgufError(f"{key} is true, which is not supported")
    known = {f"{_PREFIX}{flag}" for flag in (*_OFF, "add_space_prefix", "add_bos_token")}
    for key in meta:
        if key.startswith("tokenizer.") and key not in known and not _HARMLESS.fullmatch(key):
            raise UnusableGgufError(f"the key {key} can't be applied")
    if uses_bos(meta) and meta.get("tokenizer.ggml.bos_token_id") is None:
        raise UnusableGgufError("texts begin with a BOS token, but the key tokenizer.ggml.bos_token_id is missing")


def uses_bos(meta: Mapping[str, Any]) -> bool:
    """Whether texts begin with BOS: the file says so, or its tokenizer is a SentencePiece one or one of Llama 3's kind."""
    by_kind = meta["tokenizer.ggml.model"] == "llama" or meta.get("tokenizer.ggml.pre") in _KEPT
    return bool(meta.get("tokenizer.ggml.add_bos_token", by_kind))


def ends(meta: Mapping[str, Any]) -> list[int]:
    """The ids of the tokens that end an answer: of the text, of a turn, of a message."""
    keys = [f"{_PREFIX}{name}_token_id" for name in ("eos", "eot", "eom")]
    named = [meta[key] for key in keys if meta.get(key) is not None]
    usual = [
        i
        for i, (token, kind) in enumerate(zip(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"], strict=True))
        if token in _END_TOKENS and kind in (_CONTROL, _USER_DEFINED)
    ]
    return list(dict.fromkeys([*named, *usual]))


def corrected(made: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """`tokenizer.json` as the file has it, from the one that transformers `made` of it; equal where nothing was lost."""
    right = copy.deepcopy(dict(made))
    if meta["tokenizer.ggml.model"] == "gpt2":
        _byte_level(right, meta)
    else:
        _sentencepiece(right, meta)
    return right


def _byte_level(right: dict[str, Any], meta: Mapping[str, Any]) -> None:
    pre = meta["tokenizer.ggml.pre"]
    steps = PRE_TOKENIZERS[pre]
    right["pre_tokenizer"] = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    right["model"]["ignore_merges"] = pre in _KEPT
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    right["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    right["added_tokens"] = [
        {"id": i, "content": token, **flags, "special": kind == _CONTROL}
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _sentencepiece(right: dict[str, Any], meta: Mapping[str, Any]) -> None:
    """Spaces as llama.cpp writes them, and no token that the file doesn't have. Gemma's files have no space in front."""
    usual = not str(meta["general.architecture"]).startswith("gemma")
    prefix = bool(meta.get("tokenizer.ggml.add_space_prefix", usual))
    if prefix or _has_prefix(right):
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        before = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
        right["normalizer"] = {"type": "Sequence", "normalizers": [*before, replace]}
        right["pre_tokenizer"] = None
    size = len(meta["tokenizer.ggml.tokens"])
    right["model"]["vocab"] = {token: i for token, i in right["model"]["vocab"].items() if i < size}
    right["added_tokens"] = [token for token in right["added_tokens"] if token["id"] < size]


def is_only_respaced(made: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether all that differs is that a space is put in front also of texts that begin with one, or follow a control token."""
    return made["pre_tokenizer"] != right["pre_tokenizer"] and _has_prefix(made) and _has_prefix(right)


def _has_prefix(made: Mapping[str, Any]) -> bool:
    return "Prepend" in str(made["normalizer"]) or (made["pre_tokenizer"] or {}).get("prepend_scheme", "never") != "never"
