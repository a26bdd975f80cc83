"""Matrix products on CPUs with weights that were laid out for them once, instead of at each product."""

from collections import Counter
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Linear, Parameter

_ROWS = 256
"""Rows of a product that the layout is chosen for; any others work too."""

_COPY = 256 << 20
"""Most bytes of a copy: in models with a larger vocabulary head the layers take most of the time."""


def possible(model: Any) -> bool:
    """Whether this build of torch can do it with a model's dtype and device."""
    weight: Tensor = next(model.parameters())
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and bool(torch.backends.mkldnn.is_available())


class PackedLinear(Linear):
    """A linear layer whose weight is in oneDNN's own layout: its `weight` has dtype and shape, but can't be indexed."""

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight.T + bias, in float32."""
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], ""))


def pack_weights(model: Any) -> None:
    """Lay out the weights of all linear layers anew; the old ones are freed one by one.

    A weight that another module has too (a vocabulary head tied to the embeddings) gets a copy, if that is a small one.
    """
    owners = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    for module in model.modules():
        if type(module) is Linear and (owners[id(module.weight)] == 1 or module.weight.nbytes <= _COPY):
            packed = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), _ROWS)
            module.weight = Parameter(packed, requires_grad=False)
            module.__class__ = PackedLinear


def unpack_weights(model: Any) -> None:
    """Undo `pack_weights`."""
    packed: list[Any] = [module for module in model.modules() if type(module) is PackedLinear]
    for module in packed:
        module.weight = Parameter(module.weight.detach().to_dense(), requires_grad=False)
        module.__class__ = Linear
