"""Incidents of nodes, as they are now."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_LONG_ROWS, Listing, newest, select

_QUERY = """
    SELECT incident_id AS alert_id, resource AS node, kind, state, fault_domain, what, evidence, since, changed_at,
           step_ratio, established, short_resource, lower(hex(raised_by))[:8] AS run
    FROM incidents
"""

LISTING = Listing(
    name="alerts",
    help="incidents of nodes: suspected, confirmed and over, with their evidence",
    columns=("since", "state", "node", "run", "what"),
    wide_columns=("alert_id", "short_resource", "evidence"),
    rows=select(newest(_QUERY, ("since",), MAX_LONG_ROWS)),
    most_rows=MAX_LONG_ROWS,
)
