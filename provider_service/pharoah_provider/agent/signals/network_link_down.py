"""A link of the node is down that has been up: of a network card, or of the fabric."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import LINKS
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="network_link_down",
    measures="whether the link of a port is down that was up since the agent began",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=LINKS.readings,
)
