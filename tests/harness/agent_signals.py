"""Signals of a node for tests."""

from __future__ import annotations

from typing import Any

from pharoah_provider.agent.signals import (
    AGENT_SIGNALS,
    TROUBLE_UNIT,
    AgentSignal,
    Resource,
    SignalKind,
    WorseDirection,
)


def signal_of(**given: Any) -> AgentSignal:
    """A signal with what a test does not care about."""
    usual = {
        "name": "hot", "measures": "what a test needs", "unit": TROUBLE_UNIT, "worse": WorseDirection.HIGHER,
        "resource": Resource.COMPUTE, "kind": SignalKind.GAUGE, "leaves_node": False, "read": list,
    }  # fmt: skip
    return AgentSignal(**{**usual, **given})


def values(name: str) -> dict[str, float]:
    """Device to what a signal reads of it now."""
    return {reading.device: reading.value for reading in AGENT_SIGNALS[name].read()}
