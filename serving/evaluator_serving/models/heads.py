"""What a checkpoint can answer: its heads, from its config and, where that leaves it open, the names of its tensors."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from evaluator_serving.errors import InputError
from evaluator_serving.models.code import HEADS
from evaluator_serving.models.next_sentence import ARCHITECTURES, IS_NEXT, next_sentence


def heads_of(config: Any, names: Callable[[], frozenset[str]], spec: str, *, own_code: bool = False) -> frozenset[str]:
    """What the checkpoint can answer, from its architectures, or its model type and tensors where it names none.

    The tensors' names are asked for only where they decide something: of .bin files they are in the weights alone. With
    `own_code` the architectures may be classes of the model's own.
    """
    names = functools.cache(names)
    architectures = getattr(config, "architectures", None) or []
    heads = {head for name in architectures for head in _heads_of_class(name, config)}
    if own_code:
        heads |= _heads_of_own(config, architectures)
    if not (architectures or heads):
        heads = _heads_by_type(config, names)
    if _has_next_sentence_head(config, names):
        heads.add("pair")
    if not heads:
        named = ", ".join(architectures) or f"type {config.model_type}"
        raise InputError(f"model {spec}: {named} {_refusal(architectures, config)}")
    return frozenset(heads)


def _heads_of_class(architecture: str, config: Any) -> set[str]:
    from transformers.models.auto import modeling_auto as auto

    if architecture in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values() and config.is_encoder_decoder:
        return {"seq2seq"}
    if architecture in ARCHITECTURES:
        return {"pair"}
    if architecture == "T5WithLMHeadModel":  # T5's name in checkpoints from before transformers 3
        return {"seq2seq"}
    if architecture in auto.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES.values():
        return {"pair"}
    if architecture.endswith("ForSequenceClassification"):
        return {"pair"} if next_label(config) is not None else set()
    if architecture.endswith("ForPreTraining"):
        # ELECTRA's pre-training model is its discriminator, which has no vocabulary head.
        return {"masked"} if config.model_type != "electra" and _masked_type(config) else set()
    if architecture in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() and not _is_decoder(config):
        return {"masked"}
    if architecture in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        return {"causal"}
    # A model of text and images or audio is asked about text alone; whether it can be is found out by asking it.
    multimodal = (auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    generates = any(architecture in classes.values() for classes in multimodal)
    return {"causal"} if generates and not config.is_encoder_decoder else set()


def is_multimodal(config: Any) -> bool:
    """Whether a model's type is one of text and images or audio.

    transformers lists some of audio (Audio Flamingo 3) with the encoder-decoders only, although they have no decoder apart.
    """
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    decodes = kind in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES and not config.is_encoder_decoder
    return kind in auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES or decodes


def _refusal(architectures: Sequence[str], config: Any) -> str:
    """Why a checkpoint without a usable head has none."""
    from transformers.models.auto import modeling_auto as auto

    speech = (auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, auto.MODEL_FOR_CTC_MAPPING_NAMES)
    if any(name in mapping.values() for mapping in speech for name in architectures):
        return "transcribes speech, so it can't be scored on text alone: choose a text model"
    known = {*auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES}
    if config.is_encoder_decoder and config.model_type in known:
        return "encodes an image or audio before it writes text, so it can't be scored on text alone: choose a text model"
    return "has no language-model or next-sentence head that can be scored"


def _heads_of_own(config: Any, architectures: Sequence[str]) -> set[str]:
    """Heads that `auto_map` has classes for: those that the checkpoint was saved with, where it names one of them."""
    listed = getattr(config, "auto_map", None) or {}
    classes = {HEADS[key]: str(name).rpartition(".")[2] for key, name in listed.items() if key in HEADS}
    found = {head for head, name in classes.items() if name in architectures} or set(classes)
    return found - ({"causal", "masked"} if config.is_encoder_decoder else {"seq2seq"})


def _heads_by_type(config: Any, names: Callable[[], frozenset[str]]) -> set[str]:
    """Heads of a checkpoint that names no architecture (old conversions); loading checks the weights."""
    from transformers.models.auto import modeling_auto as auto

    if config.is_encoder_decoder:
        return {"seq2seq"} if config.model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES else set()
    if _masked_type(config) and not _is_decoder(config):
        head = re.compile(r"predictions|lm_head|vocab_|^decoder|pred_layer")
        return {"masked"} if any(head.search(name) for name in names()) else set()
    known = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES}
    return {"causal"} if config.model_type in known else set()


def _masked_type(config: Any) -> bool:
    from transformers.models.auto import modeling_auto as auto

    return config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _is_decoder(config: Any) -> bool:
    return bool(getattr(config, "is_decoder", False))


def _has_next_sentence_head(config: Any, names: Callable[[], frozenset[str]]) -> bool:
    """Whether the tensors include a next-sentence head: the original BERTs have one that their config doesn't name."""
    from transformers.models.auto import modeling_auto as auto

    if config.model_type not in auto.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES:
        return False
    return "cls.seq_relationship.weight" in names() and any(".pooler." in name for name in names())


def next_label(config: Any) -> int | None:
    """The label that means "is next": 0 for next-sentence heads, for classifiers by its name in the config, or None."""
    if next_sentence(config) is not None:
        return IS_NEXT
    if not any(name.endswith("ForSequenceClassification") for name in getattr(config, "architectures", None) or []):
        return 0
    for label, number in (config.label2id or {}).items():
        if re.sub(r"[^a-z]", "", str(label).lower()) in ("isnext", "next", "nextsentence"):
            return int(number)
    return None
