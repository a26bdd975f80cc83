"""Matrix products on CPUs with weights that were laid out for them once, instead of at each product."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from transformers.pytorch_utils import Conv1D

from evaluator_kernels.bfloat16 import LaidOut, Products, is_exact
from evaluator_serving.cache import cache_dir
from evaluator_serving.devices import bfloat16_units

_ROWS = 256
"""Rows of a product that the layout is chosen for; any others work too."""

_COPY = 320 << 20
"""Most bytes of a copy: in models with a larger vocabulary head the layers take most of the time."""


def possible(model: Any) -> bool:
    """Whether this build of torch can do it with a model's dtype and device."""
    weight: Tensor = next(model.parameters())
    fast = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and bfloat16_units() is not None)
    return fast and weight.device.type == "cpu" and bool(torch.backends.mkldnn.is_available())


class PackedLinear(Linear):
    """A linear layer whose weight is in oneDNN's own layout: its `weight` has dtype and shape, but can't be indexed."""

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight.T + bias, in the weight's dtype."""
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], ""))


class StackedLinear(PackedLinear):
    """A packed layer that has oneDNN multiply float32 as bfloat16: high and low parts of the input in one product."""

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight.T + bias, float32, to 2^-16 of the largest term if the weight is exact in bfloat16."""
        # Cut off instead of rounded: numbers near float32's largest stay finite. The low part of infinities is zero.
        high = (input.view(torch.int32) & -(1 << 16)).view(torch.float32)
        low = (input - high).where(input != high, 0.0)
        with _float32_as_bfloat16():
            products = torch.ops.mkldnn._linear_pointwise(torch.stack([high, low]), self.weight, None, "none", [], "")
        sums: Tensor = products[0].add_(products[1])
        return sums if self.bias is None else sums.add_(self.bias)


class Bfloat16Linear(Linear):
    """A linear layer that multiplies in bfloat16 and gives float32; its `weight` has dtype and shape, and NaN for numbers."""

    products: Products
    laid_out: LaidOut
    offset: Tensor | None

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight.T + bias, float32: as exact as float32 for float32 input, exact products for bfloat16 input."""
        return self.products(input, self.laid_out, self.offset)


@cache
def bfloat16_products() -> Products | None:
    """Products of bfloat16 that give float32; None where this machine has no units for them or they can't be compiled."""
    return Products.load(cache_dir() / "kernels") if bfloat16_units() else None


@contextmanager
def _float32_as_bfloat16() -> Iterator[None]:
    """oneDNN may multiply float32 as bfloat16; only matrix units do."""
    matmul = cast(Any, torch.backends.mkldnn).matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@cache
def gain(parts: int) -> float:
    """How many times as fast as one product in float32 the split one is here, 0 where there is none.

    `parts`: of how many bfloat16 numbers the weights are sums.
    """
    products = bfloat16_products()
    if products is None:
        return 0.0
    x, weight = torch.randn(256, 1024), torch.randn(1024, 1024)
    packed, laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), LaidOut.of(weight, parts)
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")),
        lambda: products(x, laid_out),
    )
    taken: list[list[float]] = [[], []]
    for _ in range(5):
        for way, seconds in zip(ways, taken, strict=True):
            begun = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - begun)
    return min(taken[0]) / min(taken[1])


def pack_weights(model: Any, *, split: bool = False) -> str:
    """Lay out the weights of all linear layers anew, GPT-2's Conv1D included; says how they are multiplied.

    The old weights are freed one by one. With `split` those of a float32 model are multiplied as bfloat16 numbers
    (`evaluator_kernels.bfloat16`), unless float32 is faster. The vocabulary head of a bfloat16 model gives float32. A weight
    that another module has too (a vocabulary head tied to the embeddings) gets a copy, if that is a small one.
    """
    owners = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    products = bfloat16_products() if split or dtype == "bfloat16" else None
    stacked = split and products is None and bfloat16_units() == "amx_bf16"
    head = model.get_output_embeddings() if dtype == "bfloat16" and hasattr(model, "get_output_embeddings") else None
    ways = Counter[str]()
    for module in model.modules():
        if type(module) not in (Linear, Conv1D):
            continue
        weight, kept = _outputs_first(module, module.weight.detach()), owners[id(module.weight)] > 1
        parts = _parts(weight) if products and (split or module is head) else 0
        way = dtype
        module.loaded_as = type(module)
        if kept and weight.numel() * (2 * parts or weight.element_size()) > _COPY:
            pass
        elif products and parts:
            way = "bf16x2" if split else "bfloat16 with float32 sums"
            _lay_out(module, products, weight, parts)
        elif stacked and is_exact(weight):
            way = "bf16x2 (stacked, no C++ compiler)"
            with _float32_as_bfloat16():
                weight = torch.ops.mkldnn._reorder_linear_weight(weight, 2 * _ROWS)
            module.weight, module.__class__ = Parameter(weight, requires_grad=False), StackedLinear
        else:
            module.weight = Parameter(torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), requires_grad=False)
            module.__class__ = PackedLinear
        ways[way] += 1
    return ", ".join(f"{count} in {way}" for way, count in ways.items()) + f" ({bfloat16_units() or 'no bfloat16 units'})"


def _parts(weight: Tensor) -> int:
    """Of how many bfloat16 numbers a weight is the sum; 0 for one that isn't exact and faster in float32.

    Three products are faster than one in float32 with matrix units alone: vector units are twice as fast.
    """
    if is_exact(weight):
        return 1
    return 2 if gain(2) > 1 else 0


def _outputs_first(module: Any, weight: Tensor) -> Tensor:
    """A weight [outputs, inputs], or one in that order as its layer had it: GPT-2's have the inputs first."""
    return weight.T.contiguous() if Conv1D in (type(module), getattr(module, "loaded_as", None)) else weight


def _lay_out(module: Any, products: Products, weight: Tensor, parts: int) -> None:
    bias = module.bias
    module.products, module.laid_out = products, LaidOut.of(weight, parts)
    module.offset = None if bias is None else bias.detach().float()
    # Whoever reads it gets NaN, which the check of a loaded model sees.
    module.weight = Parameter(torch.full((1, 1), torch.nan, dtype=weight.dtype).expand(weight.shape), requires_grad=False)
    module.__class__ = Bfloat16Linear


def unpack_weights(model: Any) -> None:
    """Undo `pack_weights`."""
    packed: list[Any] = [module for module in model.modules() if isinstance(module, PackedLinear | Bfloat16Linear)]
    for module in packed:
        if isinstance(module, PackedLinear):
            weight = module.weight.detach().to_dense()
        else:
            weight = module.laid_out.weight().to(module.weight.dtype)
            del module.products, module.laid_out, module.offset
        module.weight = Parameter(_outputs_first(module, weight), requires_grad=False)
        module.__class__ = module.loaded_as
