"""The registry of schedulers."""

from __future__ import annotations

from pharoah_protocol.registry import Registry
from pharoah_provider.schedulers._scheduler import Scheduler

GROUP = "pharoah.schedulers"
"""Entry points of this group are schedulers of other distributions."""

SCHEDULERS = Registry(Scheduler, "pharoah_provider.schedulers", GROUP)
"""All schedulers by name."""
