"""Models known by their configuration alone: enough to plan with, where neither hub, tokenizer nor weights are at hand."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.config import quiet
from evaluator_serving.models.heads import heads_of
from evaluator_serving.models.source import ModelSource


def read_configurations(path: Path) -> dict[str, dict[str, Any]]:
    """A JSON object of hub ids and their configurations, as config.json has them. Raises InputError for anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}: --configurations needs a JSON file") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}): correct it") from None
    if not isinstance(content, dict) or not all(isinstance(it, dict) and "model_type" in it for it in content.values()):
        raise InputError(f"{path}: expected an object of hub ids and configurations, each with a model_type")
    return content


def outlined(spec: str, configurations: Mapping[str, Mapping[str, Any]], chat_template: str = "none") -> ModelSource:
    """The source of a model (hub id, with or without @revision) without files. Its parameters are counted, not made.

    Raises InputError where its configuration isn't there, is of no type that transformers knows, or has no usable head.
    """
    import torch
    import transformers

    from evaluator_serving.models.loading import head_class

    name = spec.partition("@")[0]
    if name not in configurations:
        raise InputError(f"model {spec}: no configuration of {name!r} among those given: add it")
    quiet()
    entries = dict(configurations[name])
    try:
        config: Any = transformers.AutoConfig.for_model(entries.pop("model_type"), **entries)
        heads = heads_of(config, frozenset, spec)
        head: Any = min(heads)
        factory = head_class(config, head)
        with torch.device("meta"):
            auto = hasattr(factory, "from_config")
            model = factory.from_config(config, trust_remote_code=False) if auto else factory(config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if "auto_map" in configurations[name]:
            raise InputError(
                f"model {spec}: it needs code from its repository, which is not part of a configuration: plan it "
                "without --configurations"
            ) from None
        raise InputError(f"model {spec}: its configuration can't be used ({first_line(error)}): correct it") from None
    context = getattr(config.get_text_config(), "max_position_embeddings", None) or 1 << 20
    parameters = sum(tensor.numel() for tensor in model.parameters())
    return ModelSource(spec, Path(os.devnull), "configuration", heads, config, context, chat_template, parameters)
