"""The class of each node on which cells have failed: healthy, transient, gray or persistent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._context_rules import find_served_rule
from pharoah_provider.listings._listing import Listing, ListingSources, Row

if TYPE_CHECKING:
    from pharoah_learning.node_classes import ClassedNode


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each node; nodes without a failure have none."""
    from pharoah_provider.node_actions import classify_stored

    rule = await find_served_rule(sources)
    return [_render(one) for one in await classify_stored(sources.storage, rule, sources.now)]


def _render(one: ClassedNode) -> Row:
    from pharoah_provider.node_actions import render_work

    estimate = one.estimate
    return {
        "node": one.node,
        "class": estimate.node_class,
        "probability": round(estimate.posterior[estimate.node_class], 3),
        "failed": f"{one.failures}/{estimate.reruns}",
        "wrong_for": "; ".join(map(render_work, one.wrong_for)),
        "posterior": {str(name): round(share, 4) for name, share in estimate.posterior.items()},
    }


LISTING = Listing(
    name="node-classes",
    help="nodes on which cells failed: the class of each, and what a gray node is wrong for",
    columns=("node", "class", "probability", "failed", "wrong_for"),
    rows=rows,
)
