"""What a model does with its input, told by the functions that its forward pass calls."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LENGTH = 13
"""Tokens of the input that `counts_places` tries; no size of a layer is like it."""


class Watch(TorchFunctionMode):
    """Watches a forward pass.

    Attributes:
        causal: whether attention's masks hide what comes later and nothing else. Those of models that compute attention
            without torch's function aren't seen.
        choices: how many there were wherever the largest few were chosen (experts, earlier tokens).
        counts: how many numbers there were wherever they were made in a row (0, 1, 2, …).
    """

    def __init__(self) -> None:
        super().__init__()
        self.causal = True
        self.choices: set[int] = set()
        self.counts: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        match getattr(func, "__name__", ""):
            case "scaled_dot_product_attention":
                mask = (kwargs or {}).get("attn_mask", args[3] if len(args) > 3 else None)
                self.causal = self.causal and (mask is None or _is_causal(mask))
            case "topk" if args[0].shape[-1] > made.values.shape[-1]:
                self.choices.add(args[0].shape[-1])
            case "arange":
                self.counts.add(made.numel())
        return made


def _is_causal(mask: Tensor) -> bool:
    """Whether a mask, boolean or additive, [batch, heads, length, length], hides what comes later and nothing else."""
    seen = mask if mask.dtype == torch.bool else mask == 0
    return bool((seen == torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()).all())


def counts_places(model: Any) -> bool:
    """Whether the model's forward pass numbers the tokens of an input although it gets their positions and a mask.

    Llama 4's temperature is taken from such numbers: padding in front of a text, or other texts in one tree with it, shift it.
    False where the model doesn't bear such arguments.
    """
    inputs: dict[str, Tensor] = {
        "input_ids": torch.zeros(1, _LENGTH, dtype=torch.long, device=model.device),
        "position_ids": torch.arange(_LENGTH, device=model.device).unsqueeze(0),
        "attention_mask": torch.zeros(1, 1, 1, 1, dtype=model.dtype, device=model.device),
    }
    with torch.no_grad(), Watch() as watch:
        try:
            model(**inputs, use_cache=False)
        except Exception:  # whatever a model raises that has no use for positions or a mask of its own
            return False
    return _LENGTH in watch.counts
