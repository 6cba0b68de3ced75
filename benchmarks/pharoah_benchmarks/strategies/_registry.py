"""The registry of strategies. Without torch: the provider reads it."""

from __future__ import annotations

from pharoah_benchmarks.strategies._strategy import Strategy
from pharoah_protocol.registry import Registry

GROUP = "pharoah.strategies"
"""Entry points of this group are strategies of other distributions."""

STRATEGIES = Registry(Strategy, "pharoah_benchmarks.strategies", GROUP)
"""All strategies by name."""
