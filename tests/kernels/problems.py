"""Random problems for the fused masked softmax, their float64 answers and the error that float32 logits allow."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

EPSILON = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class Problem:
    """Input of `masked_log_probs`."""

    hidden: Tensor
    weight: Tensor
    candidates: Tensor
    bias: Tensor | None

    def exact(self) -> tuple[Tensor, Tensor]:
        """Log-probabilities and log-sum-exp in float64, written as a plain loop over rows and candidates."""
        rows, places = self.candidates.shape
        log_probs = torch.full((rows, places), float("-inf"), dtype=torch.float64)
        logsumexp = torch.empty(rows, dtype=torch.float64)
        for n in range(rows):
            logits = (self.weight.double() * self.hidden[n].double()).sum(dim=1)
            if self.bias is not None:
                logits = logits + self.bias.double()
            top = logits.max()
            logsumexp[n] = top + (logits - top).exp().sum().log()
            for k in range(places):
                if self.candidates[n, k] >= 0:
                    log_probs[n, k] = logits[self.candidates[n, k]] - logsumexp[n]
        return log_probs, logsumexp

    def tolerance(self) -> float:
        """Rounding of float32 logits: a few units in the last place of the sum of the products' magnitudes."""
        size = self.hidden.double().abs() @ self.weight.double().abs().T
        largest = float(size.max()) if size.numel() else 0.0
        if self.bias is not None:
            largest += float(self.bias.double().abs().nan_to_num(posinf=0.0).max())
        return 1e-5 + 4 * EPSILON * largest


def make(
    rows: int, vocabulary: int, depth: int, places: int, *, dtype: torch.dtype, bias: str, scale: float, seed: int
) -> Problem:
    """A random problem; `scale` is the typical size of its largest logits; `bias` is none, plain or holes (-inf)."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, depth, generator=generator)
    weight = torch.randn(vocabulary, depth, generator=generator) * (scale / depth**0.5)
    offsets = torch.randn(vocabulary, generator=generator) if bias != "none" else None
    if bias == "holes" and offsets is not None and vocabulary > 1:
        offsets[torch.randperm(vocabulary, generator=generator)[: max(1, vocabulary // 3)]] = float("-inf")
    candidates = torch.randint(-1, vocabulary, (rows, places), generator=generator)
    if places > 1:
        candidates[:, -1] = candidates[:, 0]  # a candidate that stands twice
    return Problem(hidden.to(dtype), weight.to(dtype), candidates, offsets)


def problems(*, rows: int, vocabulary: int, depth: int) -> st.SearchStrategy[Problem]:
    """Problems up to the given size, every edge case among them."""
    return st.builds(
        make,
        st.sampled_from([0, 1, 2, rows - 1, rows]),
        st.integers(1, vocabulary),
        st.integers(1, depth),
        st.integers(0, 5),
        dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
        bias=st.sampled_from(["none", "plain", "holes"]),
        scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
        seed=st.integers(0, 2**31),
    )


def assert_exact(problem: Problem, answer: tuple[Tensor, Tensor]) -> None:
    """The answer is float32 and as near to the float64 one as the rounding of the logits allows."""
    log_probs, logsumexp = problem.exact()
    assert answer[0].dtype == answer[1].dtype == torch.float32
    torch.testing.assert_close(answer[0].double(), log_probs, rtol=0, atol=problem.tolerance(), equal_nan=True)
    torch.testing.assert_close(answer[1].double(), logsumexp, rtol=0, atol=problem.tolerance(), equal_nan=True)
