"""Results of micro-benchmarks."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, newest, select

_QUERY = """
    SELECT node, benchmark, purpose, beside_job, started_at, ended_at, list_avg(seconds) AS mean_seconds,
           len(seconds) AS repeats, correct, digest, error
    FROM probes
"""

LISTING = Listing(
    name="probes",
    help="micro-benchmarks that ran on nodes, and why",
    columns=("started_at", "node", "benchmark", "purpose", "beside_job", "mean_seconds"),
    wide_columns=("repeats", "correct", "digest", "error"),
    rows=select(newest(_QUERY, ("started_at",))),
    most_rows=MAX_ROWS,
)
