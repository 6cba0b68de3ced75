"""How long a training step takes on a device whose ceilings are known.

Operators of a step run one after the other, so their times add up: a roofline over the whole step, whose maximum lets
computation hide behind memory traffic, is too optimistic. An operator itself takes the longer of its computation and
its traffic (Williams et al., "Roofline", CACM 2009). Collectives run beside operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pharoah.cost.ceilings import Ceilings, read_device_ceilings, read_measured_ceilings
from pharoah.cost.step import StepCost, Transfer
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named
from pharoah_archetypes.kinds import NONE, computing, kind_of
from pharoah_archetypes.vocabulary import OperatorClass
from pharoah_protocol.node_profile import NodeProfile


class Parts(NamedTuple):
    """Seconds of a step."""

    overhead: float
    """Seconds in the interpreter and the framework."""
    compute: float
    memory: float


FITTED = Parts(overhead=0.5, compute=1.1, memory=1.5)
"""Weights of the parts where ceilings were measured: operators find their inputs in a cache less often in a step
than in a benchmark. Fitted to real steps of 17 families by `python -m evaluation distributed`."""


@dataclass(frozen=True)
class Duration:
    """The predicted time of a step. Without measured ceilings it is a lower bound for eager torch."""

    ceilings: Ceilings
    parts: Parts
    communication: float
    """Seconds of all collectives; 0 when the speed of the links is not known."""

    @property
    def seconds(self) -> float:
        return max(sum(self.parts), self.communication)


def ceilings_of(fingerprint: Fingerprint, profile: NodeProfile) -> Ceilings | None:
    """The ceilings of a node, from its profile or the GPU that the job sees; None when they are not known.

    Raises CeilingsError when the profile's ceilings lack a kind of operator.
    """
    name = fingerprint.hardware.get("gpu", "")
    if profile.ceilings:
        return read_measured_ceilings(name or "this node", profile.ceilings)
    device = device_named(name) if name else None
    return read_device_ceilings(device) if device else None


def duration(cost: StepCost, ceilings: Ceilings, weights: Parts = FITTED) -> Duration:
    """Predict one step."""
    parts = operators(cost, ceilings)
    if ceilings.measured:
        parts = Parts(*(weight * seconds for weight, seconds in zip(weights, parts, strict=True)))
    sent = sum(map(_count_sent_bytes, cost.transfers)) / ceilings.link if ceilings.link else 0.0
    return Duration(ceilings, parts, sent)


def _count_sent_bytes(row: Transfer) -> float:
    """Bytes that a rank has to send for equal collectives with any algorithm: the bus bandwidth of nccl-tests."""
    share = (
        (row.ranks - 1) / row.ranks
        if row.operator_class not in (OperatorClass.BROADCAST, OperatorClass.POINT_TO_POINT)
        else 1.0
    )
    return row.times * row.moved * share * (2 if row.operator_class == OperatorClass.ALL_REDUCE else 1)


def operators(cost: StepCost, ceilings: Ceilings) -> Parts:
    """The time that the operators of a step take one after the other, as they were benchmarked."""
    overhead = compute = memory = 0.0
    for row in cost.operations:
        kind = kind_of(row.name)
        overhead += row.times * ceilings.overhead
        if kind == NONE:
            continue
        if kind in computing():
            moving = ceilings.seconds("stream", row.dtype, row.moved)
            compute += row.times * max(ceilings.seconds(kind, row.dtype, row.flops), moving)
        else:
            memory += row.times * ceilings.seconds(kind, row.dtype, row.moved)
    return Parts(overhead, compute, memory)
