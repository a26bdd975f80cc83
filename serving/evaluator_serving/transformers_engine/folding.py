"""Attention row by row over a tree: the layers see every node once, attention sees the rows, one beneath the other.

A tree of rows needs no padding and gives the layers' products as many rows as they like, but attention over all of it costs the
square of its size, most of it masked. transformers lets a program bring its own attention function: this one folds queries,
keys and values into [rows, longest], what rows share standing in each of them, calls transformers' own, and unfolds what comes
back. It takes the name of transformers' own: some models make their masks in another way for a name that they don't know.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NAME = "sdpa"


@dataclass(frozen=True, slots=True)
class Fold:
    """The node at each place of the rows, [rows, longest], 0 where there is padding, and one of its places for each node."""

    nodes: Tensor
    places: Tensor

    @classmethod
    def of(cls, paths: Sequence[Sequence[int]], device: torch.device) -> "Fold":
        """Of rows that go through these nodes of a tree."""
        nodes = np.zeros((len(paths), max(map(len, paths))), np.int64)
        places = np.zeros(1 + max(map(max, paths)), np.int64)
        for row, path in enumerate(paths):
            nodes[row, : len(path)] = path
            places[nodes[row, : len(path)]] = row * nodes.shape[1] + np.arange(len(path))
        return cls(torch.from_numpy(nodes).to(device), torch.from_numpy(places).to(device))


_fold: ContextVar[Fold | None] = ContextVar("fold", default=None)


def install(model: Any) -> bool:
    """Let a model's attention fold where it is asked to. Returns whether its attention can be replaced at all."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if getattr(model.config, "_attn_implementation", None) != _NAME:
        return False

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any) -> Any:
        fold = _fold.get()
        if fold is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        query, key, value = (states[0][:, fold.nodes.to(states.device)].transpose(0, 1) for states in (query, key, value))
        # Padding stands on the right of each row, where no causal position looks: no mask, and the fastest path.
        output, weights = sdpa_attention_forward(module, query, key, value, None, **options)
        return output.flatten(0, 1)[fold.places.to(output.device)].unsqueeze(0), weights

    AttentionInterface.register(_NAME, attend)
    return True


@contextmanager
def folded(fold: Fold | None) -> Iterator[None]:
    """In here attention folds, whatever mask the model brings; with None it doesn't."""
    token = _fold.set(fold)
    try:
        yield
    finally:
        _fold.reset(token)
