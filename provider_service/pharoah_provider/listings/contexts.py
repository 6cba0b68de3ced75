"""Contexts: what makes them, which nodes are in them, and the nearest one that campaigns know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_learning.release import Release
    from pharoah_provider.domain import Node


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each context of a node or of the newest release. One that no campaign knows has the nearest one
    beside it, with the facts in which they differ; what was learned there does not hold for it."""
    release = await sources.storage.published.newest_release()
    return await in_thread(_rows, release, await sources.storage.nodes.nodes())


def _rows(release: Release | None, stored: Iterable[Node]) -> list[Row]:
    from pharoah_learning.context_rule import ALL_FACTS, nearest

    rule, known = (release.context_rule, release.contexts) if release else (ALL_FACTS, ())
    facts = {context.context_id: context.facts for context in known}
    described = {context.context_id: context.description for context in known}
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in stored:
        context = rule.context_of(node.server_facts)
        nodes[context].append(node.node)
        facts.setdefault(context, rule.relevant(node.server_facts))
        described.setdefault(context, rule.describe(node.server_facts))
    found = []
    for context, description in sorted(described.items()):
        near = nearest(facts[context], known)
        tried = near is not None and near.context.context_id == context
        found.append(
            {
                "context": context,
                "nodes": "+".join(nodes[context]),
                "tried": "yes" if tried else "no",
                "description": description,
                "nearest": "" if tried or near is None else near.context.context_id,
                "differs": "" if tried or near is None else ", ".join(near.differs),
            }
        )
    return found


LISTING = Listing(
    name="contexts",
    help="contexts of nodes in plain words, whether campaigns have tried them, and the nearest one that they have",
    columns=("context", "nodes", "tried", "nearest", "differs", "description"),
    rows=rows,
)
