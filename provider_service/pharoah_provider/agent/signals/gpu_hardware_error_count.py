"""Errors that the driver of a GPU has reported and that its hardware usually causes."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._signal import AgentSignal
from pharoah_provider.agent.signals._xids import error_counts
from pharoah_provider.agent.xid_catalogue import XidCause

SIGNAL = AgentSignal(
    name="gpu_hardware_error_count",
    measures="errors of the GPU's hardware that its driver has reported",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: error_counts(XidCause.HARDWARE),
)
