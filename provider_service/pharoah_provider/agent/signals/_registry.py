"""The registry of a node's signals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pharoah_protocol.plugins import discover

from pharoah_provider.agent.signals._signal import AgentSignal

GROUP = "pharoah.agent_signals"
"""Entry points of this group are signals of other distributions."""


@cache
def agent_signals() -> Mapping[str, AgentSignal]:
    """All signals by name. Raises PluginError naming the entry that cannot be used."""
    package = __name__.rpartition(".")[0]
    return MappingProxyType(discover(package, "SIGNAL", GROUP, AgentSignal))
