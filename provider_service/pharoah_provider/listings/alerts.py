"""Alerts about nodes."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="alerts",
    help="suspicions and alerts about nodes, with their evidence",
    columns=("since", "state", "node", "run", "what"),
    wide_columns=("alert_id", "evidence"),
    rows=select("SELECT * EXCLUDE (run_id), lower(hex(run_id))[:8] AS run FROM alerts ORDER BY since"),
)
