"""The newest telemetry of the nodes."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="telemetry",
    help="the newest value of every metric of every node",
    columns=("node", "metric", "device", "value", "sampled_at"),
    wide_columns=("since",),
    rows=select("""
        SELECT node, metric, device, arg_max(value, last_at) AS value, max(last_at) AS sampled_at,
               arg_max(first_at, last_at) AS since
        FROM (SELECT * FROM telemetry_spans UNION ALL BY NAME SELECT * FROM open_telemetry_spans)
        GROUP BY ALL ORDER BY node, metric, device
    """),
)
