"""Runs of tenants."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, newest, select

_QUERY = """
    SELECT lower(hex(run_id))[:8] AS run, lower(hex(job_id))[:8] AS job,
        * EXCLUDE (run_id, job_id, probe_key, server_facts)
        REPLACE (CASE WHEN end_state = 'ok' THEN '' ELSE attribution END AS attribution)
    FROM runs
"""

LISTING = Listing(
    name="runs",
    help="runs of tenants, a row for each attempt, and how they ended",
    columns=("run", "tenant", "node", "attempt", "joined_at", "end_state"),
    wide_columns=("job", "attribution", "ranks", "beside_job", "ended_at"),
    rows=select(newest(_QUERY, ("joined_at", "attempt"))),
    most_rows=MAX_ROWS,
)
