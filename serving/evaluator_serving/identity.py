"""What makes a model's numbers what they are, known before its weights are loaded."""

import hashlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evaluator_serving.cache import content_hash
from evaluator_serving.engine import EngineInfo, EngineOptions, option_value
from evaluator_serving.models.config import attention, corrected
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import FILE
from evaluator_serving.registry import FALLBACK, engine_class


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those of the named distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def identity(engine: str, source: ModelSource, options: EngineOptions) -> EngineInfo:
    """The identity of `source` in the engine called `engine`, without loading anything.

    An extra option belongs to it unless the engine's class calls it harmless; tensor and pipeline parallel sizes and the device
    don't: they move numbers by rounding only, and a resumed run may have other machines.
    """
    details: dict[str, Any] = {"chat_template": source.chat_template, "quantization": options.quantization}
    if source.system is not None:
        details["system"] = source.system
    if source.thinking:
        details["thinking"] = source.thinking
    if source.code:
        details["code"] = source.code.revision
    if source.tokenizer and source.tokenizer.differ:
        details["tokenizer"] = FILE  # what was asked with the class's tokens is other questions
    if engine == FALLBACK and (kind := attention(source.config)):
        details["attention"] = kind  # what was computed without it is other numbers
    if engine == FALLBACK:
        details |= corrected(source.config)
    made = engine_class(engine)
    harmless = made.harmless_extra()
    details |= {key: _counted(value) for key, value in options.extra.items() if key not in harmless}
    versions = installed(made.packages)
    if source.adapter:
        parts = {"kind": source.adapter.kind, "base": source.adapter.base_revision, "adapter": source.adapter.revision}
        details["adapter"], versions = parts, versions | installed(("peft",))
    return EngineInfo(
        engine=engine,
        model=source.spec,
        revision=source.revision,
        # What a server computes with isn't known here, and an update of this machine must not have answers paid for again.
        dtype="served" if source.served else options.dtype,
        versions={} if source.served else versions,
        details=details,
    )


def _counted(value: Any) -> Any:
    """What an option's value is known by: a word as JSON means it, a file or folder by its content."""
    if isinstance(value, str) and os.path.exists(value):
        path = Path(value)
        return content_hash([path] if path.is_file() else [file for file in path.iterdir() if file.is_file()])
    return option_value(value)


def fingerprint(info: EngineInfo) -> str:
    """12 hexadecimal digits over revision, engine, dtype, versions and details: equal ones give comparable numbers."""
    content: Mapping[str, Any] = {
        "engine": info.engine,
        "revision": info.revision,
        "dtype": info.dtype,
        "versions": info.versions,
        "details": info.details,
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=6).hexdigest()
