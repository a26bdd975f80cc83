"""Small random-weight models with tokenizers of every kind, saved as folders that `resolve` takes.

Weights are drawn wide, so that the models' predictions differ clearly between words and positions: with the usual
initialisation every probability is near 1/V and a wrong position would go unnoticed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

# fmt: off
WORDS = [
    "the", "The", "a", "and", "I", "he", "He", "she", "She", "man", "Man", "woman", "Woman", "said", "is", "was",
    "am", "not", "my", "you", "of", "to", "in", "child", "children", "feel", "feels", "always", "cry", "cook",
    "work", "people", "strong", "weak", "boss", "nurse", "doctor", "friend", "happy", "tired",
]
# fmt: on
"""Words that are one token (with and without a space in front), except those that a kind's `split` list names."""

SPLIT = ("woman", "She")
"""Words that the kinds ending in `-split` cut into several pieces."""

_LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [chr(c) for c in range(ord("A"), ord("Z") + 1)]
_SIGNS = list("0123456789.,:;!?\"'()-&")


def wordpiece(split: Sequence[str] = (), *, lowercase: bool = False) -> Tokenizer:
    """BERT's kind: greedy longest pieces, `##` inside words, [UNK] for unknown characters, a pair template with types."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [w for w in WORDS if w not in split] + ["wo", "S", "##man", "##he"]
    pieces = list(dict.fromkeys([*specials, *_LETTERS, *(f"##{c}" for c in _LETTERS), *_SIGNS, *words]))
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level(split: Sequence[str] = (), *, specials: Sequence[str] = ("<|endoftext|>",)) -> Tokenizer:
    """GPT-2's kind: bytes and merges; a word's space belongs to its first token; no unknown characters."""
    vocabulary = {token: i for i, token in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merges: list[tuple[str, str]] = []
    words = sorted([w for w in WORDS if w not in split] + ["wo", "man", "he"], key=len, reverse=True)
    # Earlier merges win: a word's own come before those of words inside it, and those with the space before all others.
    for written in [f"Ġ{w}" for w in words] + words:
        for cut in range(1, len(written)):
            vocabulary.setdefault(written[: cut + 1], len(vocabulary))
            merges.append((written[:cut], written[cut]))
    tokenizer = Tokenizer(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def roberta_bytes(split: Sequence[str] = ()) -> Tokenizer:
    """RoBERTa's kind: byte-level, with its template and with offsets that leave out the space in front."""
    tokenizer = byte_level(split, specials=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return tokenizer


def unigram(
    split: Sequence[str] = (), *, specials: Sequence[str], template: str, pair: str, byte_fallback: bool = False
) -> Tokenizer:
    """SentencePiece's kind: `▁` for a space and in front of the text, most probable segmentation; what it doesn't know becomes
    an unknown token, or (`byte_fallback`) the characters' bytes."""
    words = [w for w in WORDS if w not in split]
    pieces = [(s, 0.0) for s in specials]
    pieces += [(f"▁{w}", -6.0) for w in words] + [("▁wo", -6.5), ("man", -6.5), ("▁S", -6.5), ("he", -6.5)]
    pieces += [(c, -10.0) for c in [*_LETTERS, *_SIGNS, "▁"]]
    if byte_fallback:
        pieces += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=list(specials).index("<unk>"), byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    ids = [(s, i) for i, s in enumerate(specials)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, pair=pair, special_tokens=ids)
    tokenizer.decoder = (
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if byte_fallback else decoders.Metaspace()
    )
    return tokenizer


def _bert_tokens(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return _finished(tokenizer, roles)


def _roberta_tokens(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    roles = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    return _finished(tokenizer, roles)


def _finished(tokenizer: Tokenizer, roles: dict[str, str], extra: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in dict.fromkeys([*roles.values(), *extra])])
    options: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def _xlmr(split: Sequence[str]) -> PreTrainedTokenizerFast:
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    template = {"template": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}
    return _roberta_tokens(unigram(split, specials=specials, **template))


def _t5(split: Sequence[str], extra: Sequence[str] = tuple(f"<extra_id_{i}>" for i in range(3))) -> PreTrainedTokenizerFast:
    specials = ["<pad>", "</s>", "<unk>", *extra]
    raw = unigram(split, specials=specials, template="$A </s>", pair="$A </s> $B </s>")
    return _finished(raw, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, extra)


def _llama(split: Sequence[str], *, byte_fallback: bool = False) -> PreTrainedTokenizerFast:
    specials = ["<unk>", "<s>", "</s>"]
    raw = unigram(split, specials=specials, template="<s> $A", pair="<s> $A <s> $B", byte_fallback=byte_fallback)
    return _finished(raw, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


TOKENIZERS: dict[str, Callable[[Sequence[str]], PreTrainedTokenizerFast]] = {
    "wordpiece": lambda split: _bert_tokens(wordpiece(split)),
    "wordpiece-lower": lambda split: _bert_tokens(wordpiece(split, lowercase=True)),
    "roberta": lambda split: _roberta_tokens(roberta_bytes(split)),
    "gpt2": lambda split: _finished(byte_level(split), {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}),
    "xlmr": _xlmr,
    "t5": _t5,
    "nllb": lambda split: _t5(split, ("eng_Latn", "slk_Latn", "pol_Latn")),
    "marian": lambda split: _t5(split, ()),
    "llama": _llama,
    "llama-bytes": lambda split: _llama(split, byte_fallback=True),
}
"""Kinds of tokenizers; each also exists as `KIND-split`, which cuts the words of SPLIT."""


def tiny_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A new tokenizer of a kind in TOKENIZERS, or of `KIND-split`."""
    name = kind.removesuffix("-split")
    return TOKENIZERS[name](SPLIT if name != kind else ())


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_PLACES = {"max_position_embeddings": 128}
_TRANSLATOR = {
    **{"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 300},
}

FAMILIES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertForMaskedLM", "wordpiece", {**_SMALL, **_PLACES}),
    "bert-nsp": ("BertConfig", "BertForNextSentencePrediction", "wordpiece", {**_SMALL, **_PLACES}),
    "bert-pretraining": ("BertConfig", "BertForPreTraining", "wordpiece", {**_SMALL, **_PLACES}),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", "roberta", {**_SMALL, **_PLACES, "type_vocab_size": 1}),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", "wordpiece", {**_SMALL, **_PLACES, "embedding_size": 16}),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", "wordpiece", {**_SMALL, **_PLACES, "embedding_size": 16}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        "wordpiece",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, **_PLACES},
    ),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM", "xlmr", {**_SMALL, **_PLACES, "type_vocab_size": 1}),
    "modernbert": (
        "ModernBertConfig",
        "ModernBertForMaskedLM",
        "roberta",
        {**_SMALL, **_PLACES, "local_attention": 8, "global_attn_every_n_layers": 2},
    ),
    "deberta-v2": (
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        "xlmr",
        {**_SMALL, **_PLACES, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", "gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", "llama", {**_SMALL, **_PLACES, "num_key_value_heads": 2}),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        "llama",
        {**_SMALL, **_PLACES, "num_key_value_heads": 2, "head_dim": 8, "final_logit_softcapping": 3.0},
    ),
    "t5": ("T5Config", "T5ForConditionalGeneration", "t5", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", "t5", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}),
}
"""family → (config class, model class, kind of its tokenizer, config)."""

TRANSLATORS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "m2m100": ("M2M100Config", "M2M100ForConditionalGeneration", "nllb", _TRANSLATOR),
    "marian": ("MarianConfig", "MarianMTModel", "marian", _TRANSLATOR),
}
"""As FAMILIES, but these translate; they aren't scored."""


def tiny_model(family: str, folder: Path, *, tokenizer: str | None = None, seed: int = 0, **config: Any) -> Path:
    """Save a random-weight model of a family above with a tokenizer of a kind in TOKENIZERS; returns `folder`.

    `config` overrides the configuration's entries, e.g. the number of layers.
    """
    config_class, model_class, own, options = (FAMILIES | TRANSLATORS)[family]
    tokens = tiny_tokenizer(tokenizer or own)
    ids = {f"{role}_token_id": getattr(tokens, f"{role}_token_id") for role in ("pad", "bos", "eos", "cls", "sep")}
    if family in ("t5", "mt5"):
        ids |= {"decoder_start_token_id": tokens.pad_token_id, "num_heads": 4}
    elif family in TRANSLATORS:
        start = tokens.eos_token_id if family == "m2m100" else tokens.pad_token_id
        ids |= {"decoder_start_token_id": start, "forced_eos_token_id": None}
    settings = {"vocab_size": len(tokens), **{k: v for k, v in ids.items() if v is not None}, **options, **config}
    model = drawn_wide(getattr(transformers, model_class)(getattr(transformers, config_class)(**settings)), seed)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def tiny_longrope(folder: Path, turn: int, *, tokenizer: str = "gpt2") -> Path:
    """Save a small Phi-3 that rotates sequences of more than `turn` tokens by other frequencies; returns `folder`."""
    tokens = tiny_tokenizer(tokenizer)
    factors = {"short_factor": [1.0] * 16, "long_factor": [9.0] * 16, "original_max_position_embeddings": turn}
    config = transformers.Phi3Config(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=300,
        original_max_position_embeddings=turn,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10_000.0, **factors},
        **{f"{role}_token_id": getattr(tokens, f"{role}_token_id") for role in ("pad", "bos", "eos")},
    )
    drawn_wide(transformers.Phi3ForCausalLM(config), 0).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m.role + ' : ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant :' }}{% endif %}"
)


def tiny_talker(folder: Path, template: str | None = CHAT_TEMPLATE, **config: Any) -> Path:
    """A small llama with a chat template, and room for a prompt in single bytes; returns `folder`."""
    made = tiny_model("llama", folder, **{"tokenizer": "llama-bytes", "max_position_embeddings": 1024, **config})
    return with_template(made, template)


def with_template(folder: Path, template: str | None = CHAT_TEMPLATE) -> Path:
    """Give the model in a folder a chat template; returns `folder`."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    tokens.chat_template = template
    tokens.save_pretrained(folder)
    return folder


def drawn_wide(model: Any, seed: int = 0) -> Any:
    """The model with all its weights drawn anew."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
            elif "norm" in name.lower() and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.4)
    return model
