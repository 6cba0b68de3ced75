"""Temperatures of the node's thermal zones."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._processors import temperatures
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="temperature_celsius",
    measures="the temperature of a thermal zone of the node",
    unit="degrees Celsius",
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=temperatures,
    period_seconds=10.0,
)
