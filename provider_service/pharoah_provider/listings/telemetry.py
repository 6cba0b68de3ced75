"""The newest telemetry of the nodes."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="telemetry",
    help="the newest value of every metric of every node",
    columns=("node", "metric", "device", "value", "sampled_at"),
    rows=select("""
        SELECT node, metric, device, arg_max(value, sampled_at) AS value, max(sampled_at) AS sampled_at
        FROM telemetry GROUP BY ALL ORDER BY node, metric, device
    """),
)
