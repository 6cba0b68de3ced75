"""What is to be done with nodes because of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row

if TYPE_CHECKING:
    from pharoah_provider.storage.records import StoredDecision


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each node of which anything was decided: what holds now."""
    return [_render(one) for one in await sources.storage.node_actions.newest()]


def _render(one: StoredDecision) -> Row:
    from pharoah_provider.node_actions import render_work

    decision = one.decision
    return {
        "node": decision.node,
        "action": decision.action,
        "since": one.decided_at,
        "class": decision.node_class,
        "score": round(decision.sick_probability, 3),
        "held_back": decision.held_back,
        "by": "operator" if one.by_operator else "learning",
        "failed": f"{decision.failures}/{decision.reruns}",
        "wrong_for": "; ".join(map(render_work, decision.wrong_for)),
    }


LISTING = Listing(
    name="node-actions",
    help="what is to be done with nodes because of their class: keep, avoid or drain",
    columns=("node", "action", "since", "class", "score", "held_back"),
    wide_columns=("by", "failed", "wrong_for"),
    rows=rows,
)
