"""Nodes: what the database holds of them, and whether their agents are connected."""

from __future__ import annotations

from pharoah_protocol.incident_states import INCIDENT_STATES
from pharoah_provider.listings._context_rules import find_served_rule
from pharoah_provider.listings._listing import Listing, ListingSources, Row

_OPEN = ", ".join(f"'{state}'" for state in INCIDENT_STATES if state.is_open and state.is_reported)
"""Names of states consist of lower-case letters, digits and underscores, so they need no escapes."""
QUERY = f"""
    SELECT n.node, n.server_facts AS facts, n.places, n.last_seen,
           (SELECT count(*) FROM runs r WHERE r.node = n.node AND r.ended_at IS NULL) AS runs,
           (SELECT count(*) FROM incidents i
            WHERE i.resource_kind IN ('node', 'check') AND i.resource = n.node AND i.state IN ({_OPEN})) AS alerts
    FROM nodes n ORDER BY n.node
"""


async def rows(sources: ListingSources) -> list[Row]:
    """Nodes with their running runs and confirmed alerts."""
    heard, rule = sources.connected, await find_served_rule(sources)
    return [
        {
            **row,
            "context": rule.context_of(row["facts"]),
            "connected": "held" if row["node"] in sources.held else "yes" if row["node"] in heard else "no",
            "seen_seconds_ago": round(sources.now - max(heard.get(row["node"], 0.0), row["last_seen"]), 1),
        }
        for row in await sources.storage.select(QUERY)
    ]


LISTING = Listing(
    name="nodes",
    help="nodes, whether they are connected, and what runs on them",
    columns=("node", "context", "connected", "seen_seconds_ago", "runs", "alerts"),
    wide_columns=("places",),
    rows=rows,
)
