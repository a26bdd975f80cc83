"""Which engine `--engine auto` means for a model."""

import importlib.util
from collections.abc import Iterable

from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource


def choose_engine(source: ModelSource, heads: Iterable[str], options: EngineOptions | None = None) -> str:
    """The fastest installed engine that can answer all `heads` of this model exactly, with these options.

    ONNX Runtime for masked models whose family it exports, vLLM for generative ones where there is a GPU (on a CPU the
    transformers engine is as fast and starts sooner), transformers for everything else.
    """
    options = options or EngineOptions()
    wanted = set(heads)
    if wanted == {"masked"} and _onnx_can(source, options):
        return "onnx"
    if wanted == {"causal"} and options.device != "cpu" and importlib.util.find_spec("vllm") and _cuda():
        return "vllm"
    return "transformers"


def _onnx_can(source: ModelSource, options: EngineOptions) -> bool:
    """Whether the onnx engine is installed, knows the family and dtype, and uses the device that torch would."""
    if not (importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx")):
        return False
    import onnxruntime

    from evaluator_serving.onnx.export import supports

    on_cuda = options.device != "cpu" and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if not on_cuda and options.device != "cpu" and _cuda():
        return False
    dtypes = ("float32", "float16", "int8") if on_cuda else ("float32", "int8")
    return options.dtype in dtypes and supports(source.config, "masked")


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()
