"""The signals of a node: what its agent reads again and again. Each public module holds one, named SIGNAL."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._registry import AGENT_SIGNALS, GROUP
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, NotOnThisNode, Reading

__all__ = [
    "AGENT_SIGNALS",
    "GROUP",
    "TROUBLE_UNIT",
    "AgentSignal",
    "NotOnThisNode",
    "Reading",
    "Resource",
    "SignalKind",
    "WorseDirection",
]
