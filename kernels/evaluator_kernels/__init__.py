"""Fused masked softmax: log-probabilities of a few words out of a whole vocabulary, without its [N, V] logits.

`masked_log_probs` is the one entry point; importing this package imports nothing heavy until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dispatch import MaskedLogProbs, masked_log_probs

__all__ = ["MaskedLogProbs", "masked_log_probs"]


def __getattr__(name: str) -> Any:
    # The ONNX graph pieces live in this package too and must be importable without paying for torch.
    if name in __all__:
        from . import dispatch

        return getattr(dispatch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
