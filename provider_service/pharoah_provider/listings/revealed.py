"""Jobs that tenants revealed after they had ended."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_LONG_ROWS, Listing, newest, select

_QUERY = """
    SELECT lower(hex(v.run_id))[:8] AS run, v.tenant, v.context_id AS context, r.end_state,
           v.fingerprint ->> '$.archetype' AS archetype, v.fingerprint, v.revealed_at
    FROM revealed_jobs v JOIN runs r USING (run_id)
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY r.attempt DESC) = 1
"""

LISTING = Listing(
    name="revealed",
    help="jobs that tenants revealed; `-o json` has the whole fingerprint",
    columns=("run", "tenant", "context", "end_state", "archetype"),
    rows=select(newest(_QUERY, ("revealed_at",), MAX_LONG_ROWS)),
    most_rows=MAX_LONG_ROWS,
)
