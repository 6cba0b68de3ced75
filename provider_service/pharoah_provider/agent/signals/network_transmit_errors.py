"""Packets that a network card could not send."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import card_counts
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="network_transmit_errors",
    measures="packets that a network card could not send",
    unit="packets",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: card_counts("statistics/tx_errors"),
    period_seconds=10.0,
)
