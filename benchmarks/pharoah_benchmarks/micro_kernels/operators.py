"""Operators that compute: products, attention, convolutions, and many that are tiny."""

from __future__ import annotations

from typing import Any

import torch

from pharoah_benchmarks.ceilings import Operator, attention, convolution
from pharoah_benchmarks.micro import Check, CheckedKernel
from pharoah_benchmarks.micro_kernels.numbers import DTYPES, digest, same_everywhere, waiting

_TOLERANCES = {"float32": 2e-3, "bfloat16": 3e-2, "float16": 1e-2}
"""Largest error beside float64, over the largest value: about ten times the rounding of a sum of a few thousand terms
(TF32 for float32 on a GPU, which rounds to 2**-11). A flipped bit of an exponent is larger."""


class Product(CheckedKernel):
    """A product of two square matrices of ones, whose entries are all the number of rows."""

    def __init__(self, device: str, dtype: str, size: int) -> None:
        self._ones = torch.ones(size, size, device=device, dtype=DTYPES[dtype])
        self._out = torch.empty_like(self._ones)
        self._size, self._wait, self._tolerance = size, waiting(device), _TOLERANCES[dtype]

    def __call__(self) -> None:
        torch.mm(self._ones, self._ones, out=self._out)
        self._wait()

    def check(self) -> Check:
        """All entries are the number of rows, up to the rounding of sums that were split."""
        error = (self._out.double() - self._size).abs().max().item()
        return Check(error <= self._tolerance * self._size, digest(self._out))


class Compared(CheckedKernel):
    """An operator whose result is compared with that of float64 on the CPU."""

    def __init__(self, device: str, dtype: str, operator: Operator, reference: Operator) -> None:
        """`reference` computes the first entry of the operator's batch in float64."""
        self._operator, self._reference = operator, reference
        self._wait, self._tolerance = waiting(device), _TOLERANCES[dtype]
        self._result = torch.empty(0)

    @torch.no_grad()
    def __call__(self) -> None:
        self._result = self._operator()
        self._wait()

    @torch.no_grad()
    def check(self) -> Check:
        """The first entry of the batch is what float64 gives, and all others are finite."""
        expected = self._reference()
        error = (self._result[:1].cpu().double() - expected).abs().max()
        near = bool(error <= self._tolerance * expected.abs().max())
        return Check(near and bool(self._result.isfinite().all()))


def compare_attention(device: str, dtype: str, batch: int, length: int) -> Compared:
    """Causal attention of `batch` sequences with four heads of 32 numbers."""
    shape = (batch, 4, length, 32)
    inputs = [same_everywhere(*shape, device=device, dtype=dtype, start=part << 32) for part in range(3)]
    reference = attention(*(part[:1].cpu().double() for part in inputs))
    return Compared(device, dtype, attention(*inputs), reference)


def compare_convolution(device: str, dtype: str, batch: int, channels: int, size: int) -> Compared:
    """A convolution of 3 x 3 over `batch` images of `size` x `size` with as many channels as the result."""
    images = same_everywhere(batch, channels, size, size, device=device, dtype=dtype)
    weight = same_everywhere(channels, channels, 3, 3, device=device, dtype=dtype, start=1 << 32)
    reference = convolution(images[:1].cpu().double(), weight.cpu().double())
    return Compared(device, dtype, convolution(images, weight), reference)


class Launches(CheckedKernel):
    """Many operators on one number each: their time is that of calling them, and of launching them on a GPU."""

    def __init__(self, device: str, count: int) -> None:
        self._number: Any = torch.zeros(1, device=device)
        self._count, self._wait = count, waiting(device)

    @torch.no_grad()
    def __call__(self) -> None:
        self._number.zero_()
        for _ in range(self._count):
            self._number += 1
        self._wait()

    def check(self) -> Check:
        """Each operator has added one."""
        return Check(self._number.item() == self._count)
