"""Does a job fit into the memory that is offered to it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pharoah.cost import cuda_allocator
from pharoah.cost.memory import Peak, peak
from pharoah.cost.step import StepCost
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named

_TIGHT_SHARE = 0.05
"""Of what is offered: what kernels take for a moment and nobody can predict."""
_HEAP = 4 << 20
"""Bytes that the heap of a training loop grows by besides tensors and kernels: `python -m evaluation distributed`."""
_CONTEXT = 640 << 20
"""Bytes a CUDA process takes before its first tensor, with the workspaces of cuBLAS."""
_COMMUNICATOR = 256 << 20
"""Bytes NCCL takes for the groups of a distributed job."""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory that is offered to one process."""

    name: str
    bytes: int
    on_gpu: bool = False
    inside: bool = False
    """Whether the interpreter and its libraries were there before the limit, and do not count."""


class FitStatus(StrEnum):
    """Whether a job fits into its memory budget."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class Fit:
    budget: MemoryBudget
    needed: int
    """Bytes."""
    peak: Peak
    """What of it is tensors and kernels."""

    @property
    def status(self) -> FitStatus:
        if self.needed > self.budget.bytes:
            return FitStatus.DOES_NOT_FIT
        return FitStatus.TIGHT if self.needed > self.budget.bytes * (1 - _TIGHT_SHARE) else FitStatus.FITS


def memory_budget_of(fingerprint: Fingerprint, profile: Mapping[str, Any]) -> MemoryBudget | None:
    """What a node offers, from the job's own view of it and the node's profile; None when nobody knows."""
    if name := fingerprint.hardware.get("gpu"):
        device = device_named(name)
        return MemoryBudget(name, device.memory_bytes, on_gpu=True) if device else None
    if limit := profile.get("memory_limit_bytes"):
        return MemoryBudget("the node's memory limit", limit)
    return None


def fit(cost: StepCost, budget: MemoryBudget) -> Fit:
    """Compare what a step needs with what is offered."""
    most = peak(cost.memory)
    if not budget.on_gpu:
        outside = 0 if budget.inside else cost.process_bytes
        return Fit(budget, most.bytes + _HEAP + outside, most)
    outside = _CONTEXT + (_COMMUNICATOR if cost.transfers else 0)
    try:
        reserved = cuda_allocator.most_reserved(cost.memory.events, budget.bytes - outside)
    except cuda_allocator.OutOfMemory:
        reserved = max(cuda_allocator.most_reserved(cost.memory.events), budget.bytes + 1 - outside)
    return Fit(budget, reserved + outside, most)
