"""How runs end, by the pseudonyms under which tenants report."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, select

LISTING = Listing(
    name="outcomes",
    help="how runs ended, by the pseudonyms of jobs that tenants share",
    columns=("name", "period", "context", "organisations", "runs", "failed"),
    rows=select(f"""
        SELECT name[:16] AS name, period, context_id AS context, count(DISTINCT organisation) AS organisations,
               count(*) AS runs, sum(failed::INT)::INT AS failed
        FROM outcome_reports GROUP BY ALL ORDER BY period DESC, failed DESC, name LIMIT {MAX_ROWS}
    """),
    most_rows=MAX_ROWS,
)
