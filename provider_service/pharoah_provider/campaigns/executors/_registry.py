"""The registry of executors."""

from __future__ import annotations

from pharoah_protocol.registry import Registry, RegistryError
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors._executor import ExecutorKind

GROUP = "pharoah.executors"
"""Entry points of this group are executors of other distributions."""

EXECUTORS = Registry(ExecutorKind, "pharoah_provider.campaigns.executors", GROUP)
"""All executors by name."""


def executor_of(settings: ExecutorSettings) -> ExecutorKind:
    """The executor that settings name. Raises ValueError for one that does not exist or cannot run with them here."""
    try:
        kind = EXECUTORS[settings.name]
    except RegistryError as error:
        raise ValueError(f"executor: {error}") from None
    kind.check_settings(settings)
    return kind
