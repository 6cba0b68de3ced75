"""The registry of a node's signals."""

from __future__ import annotations

from pharoah_protocol.registry import Registry
from pharoah_provider.agent.signals._signal import AgentSignal

GROUP = "pharoah.agent_signals"
"""Entry points of this group are signals of other distributions."""

AGENT_SIGNALS = Registry(AgentSignal, "pharoah_provider.agent.signals", GROUP)
"""All signals of a node by name."""
