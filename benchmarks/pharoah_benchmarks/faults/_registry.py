"""The registry of faults. Without torch: the provider reads it."""

from __future__ import annotations

from pharoah_benchmarks.faults._fault import Fault
from pharoah_protocol.registry import Registry

GROUP = "pharoah.faults"
"""Entry points of this group are faults of other distributions."""

FAULTS = Registry(Fault, "pharoah_benchmarks.faults", GROUP)
"""All faults by name."""

_RENAMED = {"cpu_stressor": "cpu_share", "leak": "host_leak"}
"""Names in evidence from before the registry."""


def name_now(name: str) -> str:
    """The name of a fault today, for one that was stored."""
    return _RENAMED.get(name, name)
