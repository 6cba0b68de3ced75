"""One bit of one parameter changes."""

from __future__ import annotations

import random
from typing import Any

from pharoah.torch_names import local_part
from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Place
from pharoah_benchmarks.micro import Resource


class _Flip(Effect):
    def __init__(self, place: Place) -> None:
        assert place.model is not None, "it acts inside the process of the rank"
        self._model, self._schedule, self._seed = place.model, place.schedule, place.seed
        self._done = False

    def before_step(self) -> None:
        if self._done or self._schedule.share() == 0:
            return
        self._done = True
        numbers: Any = max((parameter.detach() for parameter in self._model.parameters()), key=lambda one: one.numel())
        numbers = local_part(numbers)  # this rank's part of a DTensor
        if numbers.numel():
            _flip(numbers, random.Random(self._seed).randrange(numbers.numel()), int(self._schedule.dose))


def _flip(numbers: Any, at: int, bit: int) -> None:
    """Flip a bit of one number in place; bit 0 is the sign, 1 the highest bit of the exponent (IEEE 754)."""
    import torch

    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[numbers.element_size()]
    width = 8 * numbers.element_size()
    mask = 1 << (width - 1 - bit)
    patterns = numbers.view(-1)[at : at + 1].view(integers)
    patterns ^= mask - (1 << width) if bit == 0 else mask


FAULT = Fault(
    name="bit_flip",
    help="one bit of one number in the largest parameter changes once, at the onset; the ramp has no effect. A high "
    "bit of the exponent ends in NaN, a low one is seen in nothing but the loss",
    resource=Resource.COMPUTE,
    dose=Dose(
        unit="the place of the bit: 0 is the sign, 1 the top of the exponent",
        least=0,
        most=15,
        examples=(6, 1),
        whole=True,
    ),
    inside=_Flip,
)
