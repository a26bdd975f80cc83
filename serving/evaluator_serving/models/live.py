"""A model that is in memory already, as a source: its weights are never written."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch

from evaluator_serving.errors import InputError
from evaluator_serving.models.config import context
from evaluator_serving.models.heads import heads_of
from evaluator_serving.models.source import ModelSource


def live_source(model: Any, tokenizer: Any, folder: Path, spec: str, chat_template: str = "none") -> ModelSource:
    """A transformers module as a source, called `spec`; its configuration and tokenizer are written into `folder`.

    The revision is a digest of the weights as they are now. Raises InputError for a model without a usable head.
    """
    if tokenizer is None:
        raise InputError(f"model {spec}: there is no tokenizer: give the Trainer its processing_class")
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = copy.deepcopy(base.config)
    config.architectures = [type(base).__name__]
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ModelSource(
        spec,
        folder,
        weights_digest(model),
        heads_of(config, lambda: frozenset(name for name, _ in base.named_parameters()), spec),
        config,
        context(config),
        chat_template,
        sum(parameter.numel() for parameter in model.parameters()),
        module=model,
    )


@torch.no_grad()
def weights_digest(model: Any) -> str:
    """`sha256:…` over each parameter's name, sum and sum of squares in float64: another step of a training has another one."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        numbers = parameter.detach().double()
        digest.update(f"{name} {float(numbers.sum())!r} {float(numbers.square().sum())!r}\n".encode())
    return f"sha256:{digest.hexdigest()}"
