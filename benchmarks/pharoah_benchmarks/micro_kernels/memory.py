"""Memory: copies, and patterns that are written and read back."""

from __future__ import annotations

import torch

from pharoah_benchmarks.micro import Check, CheckedKernel
from pharoah_benchmarks.micro_kernels.numbers import bits, same_everywhere, waiting

_WORD_BITS = 64


class Copy(CheckedKernel):
    """Copies of bytes from one device to another or within one; memory of the host is pinned beside a GPU."""

    def __init__(self, source: str, target: str, copied_bytes: int) -> None:
        numbers = same_everywhere(1 << 20, device="cpu", dtype="float32")
        count = copied_bytes // numbers.element_size()
        pinned = "cuda" in (source, target)
        self._source, self._target = (
            torch.empty(count, device=device, pin_memory=pinned and device == "cpu") for device in (source, target)
        )
        self._source.copy_(numbers.repeat(-(-count // len(numbers)))[:count])
        self._wait = waiting("cuda" if pinned else "cpu")

    def __call__(self) -> None:
        self._target.copy_(self._source, non_blocking=True)
        self._wait()

    def check(self) -> Check:
        """What arrived has the bits of what was sent."""
        return Check(torch.equal(bits(self._target.cpu()), bits(self._source.cpu())))


class Patterns(CheckedKernel):
    """Patterns that walk through a buffer: each repeat writes one to all words and reads it back.

    The patterns are those of memory testers: a one that walks through zeros, a zero that walks through ones, and the
    address of each word, which finds words that share a cell (A. van de Goor, Testing Semiconductor Memories, 1991).
    """

    def __init__(self, device: str, tested_bytes: int) -> None:
        self._words = torch.empty(tested_bytes // 8, dtype=torch.int64, device=device)
        self._places = torch.arange(len(self._words), device=device)
        self._repeat = self._wrong = 0

    def __call__(self) -> None:
        self._write()
        self._wrong += int((self._words != self._pattern()).sum())
        self._repeat += 1

    def _write(self) -> None:
        self._words.copy_(self._pattern())

    def _pattern(self) -> torch.Tensor:
        """What all words hold in this repeat; a test may plant an error after the write."""
        if self._repeat % 3 == 2:
            return self._places
        walking = torch.ones_like(self._places).bitwise_left_shift_((self._places + self._repeat) % _WORD_BITS)
        return walking if self._repeat % 3 == 0 else walking.bitwise_not_()

    def check(self) -> Check:
        """No word of any repeat differed from what was written."""
        return Check(self._wrong == 0)
