"""The registry of a node's facts."""

from __future__ import annotations

from pharoah_protocol.registry import Registry
from pharoah_provider.agent.facts._group import FactGroup

GROUP = "pharoah.facts"
"""Entry points of this group are groups of facts of other distributions."""

FACT_GROUPS = Registry(FactGroup, "pharoah_provider.agent.facts", GROUP)
"""All groups of facts by name."""
