"""A Python program on a core that computes wrong matrix products: everything else of it is as usual.

    python evaluation/scripts/wrong_products.py SEED KIND RATE -- train.py --steps 8
    python evaluation/scripts/wrong_products.py SEED KIND RATE -- -m pharoah replay FILE

The kernels of `mm`, `addmm`, `bmm` and `baddbmm` of this process compute what torch's own compute. Then one bit of one
number changes, without any error. RATE is the share of the products in which that happens; KIND says to which bit:

    random     any bit of any number, in products at random
    small      one of the eight lowest bits, in products at random
    stuck      always the same bit and the same place
    certain    any bit, but always for the same inputs: a repeat of the product is wrong again
"""

from __future__ import annotations

import random
import runpy
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

OPERATORS = ("mm", "addmm", "bmm", "baddbmm")
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""A signed whole number with as many bytes as a floating-point number."""
STUCK_PLACE, STUCK_BIT = 5, 20
SMALL_BITS = 8


class WrongCore:
    """Changes results of products."""

    def __init__(self, seed: int, kind: str, rate: float) -> None:
        self._random, self._kind, self._rate = random.Random(seed), kind, rate

    def spoil(self, result: Tensor, inputs: Sequence[Tensor]) -> None:
        """Change a bit of a result, or nothing."""
        if result.numel() == 0 or not result.is_floating_point():
            return
        drawn, width = self._random, 8 * result.element_size()
        if self._kind == "certain":
            content = b"".join(
                one.detach().contiguous().view(-1)[:64].view(torch.uint8).numpy().tobytes() for one in inputs
            )
            drawn = random.Random(zlib.crc32(content))
        if drawn.random() >= self._rate:
            return
        place, bit = drawn.randrange(result.numel()), drawn.randrange(SMALL_BITS if self._kind == "small" else width)
        if self._kind == "stuck":
            place, bit = STUCK_PLACE % result.numel(), STUCK_BIT % width
        numbers = result.view(-1)[place : place + 1].view(INTEGERS[result.element_size()])
        mask = 1 << bit
        numbers ^= mask - (1 << width) if bit == width - 1 else mask


def install(core: WrongCore) -> torch.library.Library:
    """Let the products of this process go wrong for as long as the library is held."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its kernels are replaced
        for name in OPERATORS:
            library.impl(name, _kernel(getattr(torch.ops.aten, name).out, core), "CPU")
    return library


def _kernel(compute: Any, core: WrongCore) -> Callable[..., Tensor]:
    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        tensors = [one for one in args if isinstance(one, Tensor)]
        result: Tensor = compute(*args, **kwargs, out=tensors[-1].new_empty(0))
        core.spoil(result, tensors)
        return result

    return kernel


def main() -> None:
    seed, kind, rate, _, *program = sys.argv[1:]
    held = install(WrongCore(int(seed), kind, float(rate)))
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")
    del held


if __name__ == "__main__":
    main()
