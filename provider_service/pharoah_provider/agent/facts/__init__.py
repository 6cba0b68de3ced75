"""The facts of a node: what its agent reads once a minute and sends when it changes. Each public module holds a group
of them, named FACTS."""

from __future__ import annotations

from pharoah_provider.agent.facts._group import FactGroup
from pharoah_provider.agent.facts._registry import FACT_GROUPS, GROUP

__all__ = ["FACT_GROUPS", "GROUP", "FactGroup"]
