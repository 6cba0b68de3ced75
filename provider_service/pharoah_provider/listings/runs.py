"""Runs of tenants."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="runs",
    help="runs of tenants and how they ended",
    columns=("run", "tenant", "node", "attempt", "joined_at", "end_state"),
    wide_columns=("ranks", "beside_job", "ended_at"),
    rows=select("SELECT lower(hex(run_id))[:8] AS run, * EXCLUDE (run_id) FROM runs ORDER BY joined_at"),
)
