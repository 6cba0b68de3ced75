"""The history of incidents."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_LONG_ROWS, Listing, newest, select

_QUERY = """
    SELECT incident_id, resource AS node, kind, state, fault_domain, what, evidence, since, changed_at, step_ratio,
           short_resource, lower(hex(raised_by))[:8] AS run
    FROM incident_transitions
"""

LISTING = Listing(
    name="incidents",
    help="every change of every incident of a node, in order",
    columns=("changed_at", "state", "kind", "node", "what"),
    wide_columns=("incident_id", "run", "short_resource", "evidence"),
    rows=select(newest(_QUERY, ("changed_at",), MAX_LONG_ROWS)),
    most_rows=MAX_LONG_ROWS,
)
