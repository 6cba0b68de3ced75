"""The same products again and again: a machine that computes other bits now and then corrupts data silently.

A core or a GPU can give wrong results without any error (H. Dixit et al., Silent Data Corruptions at Scale,
arXiv:2102.11245; P. Hochschild et al., Cores that don't count, HotOS 2021). One process repeats the same products in
the same order, so all bits must be equal. The digest of the bits is the same on all healthy nodes of one class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pharoah_benchmarks.micro import Check, CheckedKernel
from pharoah_benchmarks.micro_kernels.numbers import bits, digest, same_everywhere

Product = Callable[[Tensor, Tensor], Tensor]


class Reproduced(CheckedKernel):
    """A chain of products whose bits must be the same in each repeat."""

    def __init__(self, device: str, size: int, products: int, product: Product = torch.mm) -> None:
        """Square matrices with `size` rows. The scale keeps the numbers of the chain near one."""
        self._first = same_everywhere(size, size, device=device, dtype="float32")
        scale = (12 / size) ** 0.5  # the variance of the numbers is 1/12
        self._factor = same_everywhere(size, size, device=device, dtype="float32", start=1 << 32) * scale
        self._products, self._product = products, product
        self._expected: Tensor | None = None
        self._same = True

    @torch.no_grad()
    def __call__(self) -> None:
        result = self._first
        for _ in range(self._products):
            result = self._product(result, self._factor)
        if self._expected is None:
            self._expected = result.clone()
        self._same &= torch.equal(bits(result), bits(self._expected))

    def check(self) -> Check:
        """All repeats had the bits of the first one, and no number overflowed."""
        if self._expected is None:
            return Check(False)
        return Check(self._same and bool(self._expected.isfinite().all()), digest(self._expected))
