"""Reports of runs, as spans of equal values."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, newest, select

_QUERY = """
    SELECT lower(hex(run_id))[:8] AS run, rank, started_at, ended_at, last_second - first_second + 1 AS seconds,
           signals['step_ratio'] AS step_ratio, signals['memory_ratio'] AS memory_ratio, masked, risk
    FROM (SELECT * FROM report_spans UNION ALL BY NAME SELECT * FROM open_report_spans)
"""

LISTING = Listing(
    name="reports",
    help="what runs report: a row per rank and span of equal values",
    columns=("run", "rank", "started_at", "seconds", "step_ratio", "memory_ratio", "risk"),
    wide_columns=("ended_at", "masked"),
    rows=select(newest(_QUERY, ("ended_at", "started_at"))),
    most_rows=MAX_ROWS,
)
