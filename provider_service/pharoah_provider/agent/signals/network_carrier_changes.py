"""How often the link of a network card came or went."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import card_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="network_carrier_changes",
    measures="how often the carrier of a network card has changed",
    unit="changes",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: card_counts("carrier_changes"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
