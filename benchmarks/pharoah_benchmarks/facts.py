"""Facts of a context as tokens. Standard library only: the agent imports this, and never torch."""

from __future__ import annotations

from typing import Any


def server_facts(facts: dict[str, Any]) -> list[str]:
    """All facts as `name=value`; a server configuration is the set of them."""
    return sorted(f"{name}={value}" for name, value in facts.items())


def device_facts(facts: dict[str, Any]) -> list[str]:
    """What names the device model only."""
    return sorted(f"{name}={facts[name]}" for name in ("device", "isa", "gpu") if name in facts)
