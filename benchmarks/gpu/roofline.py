"""Minimum work of the fused masked softmax, and its time on a chip with known rates. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass

PRODUCTS = {"float32": 3, "bfloat16": 1, "float16": 1}
"""Tensor-core products for one product of the input: float32 is exact to rounding as three of TF32."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a problem of N rows, a vocabulary of V, a width of H and K candidates a row asks for.

    Attributes:
        products: operations of the matrix product, a multiplication and an addition each: 2 N V H.
        exponentials: one a logit, N V.
        finish: operations of the candidates' own dot products, 2 N K H.
        read, written: bytes that any way to do it moves: hidden states, weight, bias and ids once; log-probabilities, the
            log-sum-exp and the partial pairs out, and these in again.
    """

    products: int
    exponentials: int
    finish: int
    read: int
    written: int

    @property
    def moved(self) -> int:
        """All bytes."""
        return self.read + self.written


def work(rows: int, vocabulary: int, width: int, candidates: int, *, size: int, splits: int, bias: bool = True) -> Work:
    """The counts, for numbers of `size` bytes and a vocabulary that is split among `splits` programs."""
    pairs = 2 * 4 * rows * splits
    inputs = size * (rows * width + vocabulary * width + (vocabulary if bias else 0)) + 8 * rows * candidates
    return Work(
        products=2 * rows * vocabulary * width,
        exponentials=rows * vocabulary,
        finish=2 * rows * candidates * width,
        read=inputs + pairs,
        written=4 * rows * (candidates + 1) + pairs,
    )


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this chip can do, measured here: its copy rate (read + written bytes), its matrix-product rate by type.

    `matmul_tflop_s` has `tf32` besides the types, where the chip has it.
    """

    copy_gb_s: float
    matmul_tflop_s: Mapping[str, float]

    def product_rate(self, dtype: str) -> float:
        """TFLOP/s of exact products: in float32 the better of plain ones and three of TF32."""
        plain = self.matmul_tflop_s[dtype]
        return max(plain, self.matmul_tflop_s.get("tf32", 0.0) / PRODUCTS[dtype]) if dtype == "float32" else plain


def roofline(asked: Work, ceilings: Ceilings, dtype: str) -> tuple[float, str]:
    """(milliseconds, what bounds them): the larger of the products at the chip's rate and the bytes at its copy rate."""
    arithmetic = (asked.products + asked.finish) / ceilings.product_rate(dtype) / 1e9
    memory = asked.moved / ceilings.copy_gb_s / 1e6
    return max((arithmetic, "arithmetic"), (memory, "memory"))
