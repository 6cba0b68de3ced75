"""The driver of a GPU has reported an error of its hardware, which is not one to be ignored."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal
from pharoah_provider.agent.signals._xids import hardware_trouble

SIGNAL = AgentSignal(
    name="gpu_hardware_errors",
    measures="whether the GPU's driver has reported an error of the hardware in the last hour",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=hardware_trouble,
)
