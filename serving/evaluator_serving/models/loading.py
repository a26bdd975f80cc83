"""Loading transformers models by head, with the checks that loading alone can make."""

from typing import Any

import torch

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.config import attention, quiet
from evaluator_serving.models.heads import is_multimodal
from evaluator_serving.models.next_sentence import next_sentence
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Head

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bf16x2": torch.float32,
}


def load(source: ModelSource, head: Head, dtype: torch.dtype, device: torch.device, spread: int = 1) -> Any:
    """The model with the head that `head` asks for, in evaluation mode on `device`.

    With `spread` above 1 its layers are laid over as many GPUs as this process sees (the `accelerate` package does it).

    A source with a module of its own gives that, as it is.

    Raises InputError where the weights can't be read, or where some of the model's (its head's above all) are missing
    from the checkpoint and would be random numbers.
    """
    if source.module is not None:
        return source.module
    if next_sentence(source.config) is not None:
        from evaluator_serving.models.classifiers import load as load_classifier

        quiet()
        try:
            return load_classifier(source.path, source.config).to(device, dtype)
        except Exception as error:
            raise InputError(f"model {source.spec}: its weights can't be loaded ({first_line(error)})") from error
    factory = head_class(source.config, head, own_code=source.code is not None)
    if spread > 1:
        return pretrained(source, factory, head, dtype, device_map="balanced").eval()
    return pretrained(source, factory, head, dtype).eval().to(device)


def pretrained(source: ModelSource, factory: Any, head: str, dtype: torch.dtype, device_map: str | None = None) -> Any:
    """A model of one of transformers' classes. Raises InputError as `load` does; `head` names the class's head in it."""
    quiet()
    try:
        model, info = factory.from_pretrained(
            source.path,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=source.code is not None,
            output_loading_info=True,
            device_map=device_map,
            **({"attn_implementation": plain} if (plain := attention(source.config)) else {}),
        )
    except Exception as error:
        raise InputError(f"model {source.spec}: its weights can't be loaded ({first_line(error)})") from error
    parameters = {name for name, _ in model.named_parameters()}
    missing = sorted(set(info["missing_keys"]) & parameters)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"model {source.spec}: {missing[0]}{more} not in the checkpoint, so its {head} head would be random; "
            "use a checkpoint that was saved with this head"
        )
    return model


def head_class(config: Any, head: Head, *, own_code: bool = False) -> Any:
    """The transformers class that loads a model of this config with that head; with `own_code` by its repository's programs."""
    import transformers

    if head == "pair":
        named = getattr(config, "architectures", None) or []
        classifier = any(name.endswith("ForSequenceClassification") for name in named)
        return (
            transformers.AutoModelForSequenceClassification if classifier else transformers.AutoModelForNextSentencePrediction
        )
    if head in ("causal", "chat"):
        return transformers.AutoModelForCausalLM if own_code else _generative(config)
    return {"masked": transformers.AutoModelForMaskedLM, "seq2seq": transformers.AutoModelForSeq2SeqLM}[head]


def _generative(config: Any) -> Any:
    """The transformers class that loads a generative model of this config: the one that it names, where its type has another.

    That is a multimodal checkpoint's own class, and that of text parts (Emu3, Mllama) whose type no Auto class knows.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    alone = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    several = (alone, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    named = set(getattr(config, "architectures", None) or ())
    if config.model_type in alone and (not named or not named.isdisjoint(alone.values())):
        return transformers.AutoModelForCausalLM
    if own := [name for classes in several for name in classes.values() if name in named]:
        return getattr(transformers, own[0])
    return transformers.AutoModelForMultimodalLM if is_multimodal(config) else transformers.AutoModelForCausalLM
