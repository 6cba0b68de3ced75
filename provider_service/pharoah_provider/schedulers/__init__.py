"""Commands by which a scheduler takes nodes out of service and returns them."""

from pharoah_provider.schedulers._registry import GROUP, SCHEDULERS
from pharoah_provider.schedulers._scheduler import NodeOrder, Scheduler, commands

__all__ = ["GROUP", "SCHEDULERS", "NodeOrder", "Scheduler", "commands"]
