"""Which context listings show: the one that the newest release gives to a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import ListingSources

if TYPE_CHECKING:
    from pharoah_learning.context_rule import ContextRule


async def find_served_rule(sources: ListingSources) -> ContextRule:
    """The rule of the newest release; before the first one every set of facts is a context."""
    from pharoah_learning.context_rule import ALL_FACTS

    release = await sources.storage.published.newest_release()
    return release.context_rule if release else ALL_FACTS
