"""Packets that a network card had no room for."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import card_counts
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="network_dropped",
    measures="packets that were dropped on their way in or out of a network card",
    unit="packets",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: card_counts("statistics/rx_dropped", "statistics/tx_dropped"),
    period_seconds=10.0,
)
