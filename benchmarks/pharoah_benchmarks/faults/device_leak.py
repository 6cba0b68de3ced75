"""Memory of a GPU that grows and is never freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Place
from pharoah_benchmarks.micro import Resource
from pharoah_protocol.vocabulary import DeviceKind

if TYPE_CHECKING:
    import torch


class _DeviceLeak(Effect):
    def __init__(self, place: Place) -> None:
        assert place.model is not None, "it acts inside the process of the rank"
        self._device = next(place.model.parameters()).device
        self._schedule = place.schedule
        self._held: list[torch.Tensor] = []
        self._size = 0

    def after_step(self) -> None:
        """Grow by what is owed. Raises torch's OutOfMemoryError when the GPU is full."""
        import torch

        wanted = int(self._schedule.amount())
        if wanted > self._size:
            self._held.append(torch.ones(wanted - self._size, dtype=torch.uint8, device=self._device))
            self._size = wanted


FAULT = Fault(
    name="device_leak",
    help="the process allocates memory of its GPU after each step, writes it and keeps it, until the GPU is full",
    resource=Resource.MEMORY_CAPACITY,
    dose=Dose(unit="bytes per second", least=1e3, most=1e12, examples=(1e9, 8e9)),
    inside=_DeviceLeak,
    device=DeviceKind.CUDA,
)
