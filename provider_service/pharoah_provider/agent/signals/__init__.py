"""The signals of a node: what its agent reads again and again. Each public module holds one, named SIGNAL."""

from __future__ import annotations

from pharoah_provider.agent.signals._registry import agent_signals
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading, Worse

__all__ = ["TROUBLE_UNIT", "AgentSignal", "Reading", "Worse", "agent_signals"]
