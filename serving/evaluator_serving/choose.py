"""Which engine `--engine auto` means for a model."""

import importlib.util
from collections.abc import Iterable

from evaluator_serving.models import ModelSource


def choose_engine(source: ModelSource, heads: Iterable[str], device: str = "auto") -> str:
    """The fastest installed engine that can answer all `heads` of this model exactly.

    ONNX Runtime for masked models whose family it exports, vLLM for generative ones where there is a GPU (on a CPU the
    transformers engine is as fast and starts sooner), transformers for everything else.
    """
    wanted = set(heads)
    if wanted == {"masked"} and importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        from evaluator_serving.onnx.export import supports

        if supports(source.config):
            return "onnx"
    if wanted == {"causal"} and device != "cpu" and importlib.util.find_spec("vllm"):
        import torch

        if torch.cuda.is_available():
            return "vllm"
    return "transformers"
