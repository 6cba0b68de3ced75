"""Whether a job fits into its memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pharoah.cost import cuda_allocator
from pharoah.cost.memory import Peak, peak
from pharoah.cost.step import StepCost
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named
from pharoah_protocol.node_profile import NodeProfile

_TIGHT_SHARE = 0.05
"""Share of the budget that covers short-lived memory of kernels, which cannot be predicted."""
_HEAP = 4 << 20
"""Bytes by which the heap of a training loop grows besides tensors and kernels: `python -m evaluation distributed`."""
CONTEXT = 760 << 20
"""Bytes of the GPU that a process takes beside torch's allocator: 632 to 760 MiB (`python -m evaluation gpu`)."""
_WORKSPACES = 64 << 20
"""Bytes of torch's allocator that cuBLAS works in, on an H200 (`python -m evaluation gpu --part memory`)."""
_COMMUNICATOR = 256 << 20
"""Bytes that NCCL allocates for the groups of a distributed job."""


@dataclass(frozen=True)
class MemoryBudget:
    """The memory that one process may use."""

    name: str
    bytes: int
    on_gpu: bool = False
    inside: bool = False
    """Whether the limit does not count the interpreter and its libraries."""


class FitStatus(StrEnum):
    """Whether a job fits into its memory budget."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class Fit:
    """The memory that a job needs beside the memory that it may use."""

    budget: MemoryBudget
    needed: int
    """Bytes that the job needs."""
    peak: Peak
    """The part of it that is tensors and kernels."""

    @property
    def status(self) -> FitStatus:
        if self.needed > self.budget.bytes:
            return FitStatus.DOES_NOT_FIT
        return FitStatus.TIGHT if self.needed > self.budget.bytes * (1 - _TIGHT_SHARE) else FitStatus.FITS


def memory_budget_of(fingerprint: Fingerprint, profile: NodeProfile) -> MemoryBudget | None:
    """The budget on a node, from the hardware that the job sees and the node's profile; None when it is not known."""
    if name := fingerprint.hardware.get("gpu"):
        device = device_named(name)
        return MemoryBudget(name, device.memory_bytes, on_gpu=True) if device else None
    if profile.memory_limit_bytes:
        return MemoryBudget("the node's memory limit", profile.memory_limit_bytes)
    return None


def fit(cost: StepCost, budget: MemoryBudget) -> Fit:
    """Compare the memory that a step needs with a budget."""
    most = peak(cost.memory)
    if not budget.on_gpu:
        outside = 0 if budget.inside else cost.process_bytes
        return Fit(budget, most.bytes + _HEAP + outside, most)
    outside = CONTEXT + (_COMMUNICATOR if cost.transfers else 0)
    try:
        reserved = compute_reserved_bytes(cost, budget.bytes - outside)
    except cuda_allocator.OutOfMemory:
        reserved = max(compute_reserved_bytes(cost), budget.bytes + 1 - outside)
    return Fit(budget, reserved + outside, most)


def compute_reserved_bytes(cost: StepCost, capacity: int | None = None) -> int:
    """The bytes of a GPU that torch's allocator reserves. Raises OutOfMemory when a `capacity` is not enough."""
    left = None if capacity is None else capacity - _WORKSPACES
    return _WORKSPACES + cuda_allocator.most_reserved(cost.memory.events, left)
