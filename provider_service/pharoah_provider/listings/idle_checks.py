"""Checks of idle nodes."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, newest, select

LISTING = Listing(
    name="idle-checks",
    help="checks of idle nodes: which micro-benchmark, what it has shown, and how probably it was chosen",
    columns=("checked_at", "node", "benchmark", "result", "slowdown_ratio"),
    wide_columns=("propensity", "reason"),
    rows=select(newest("SELECT * FROM idle_checks", ("checked_at",))),
    most_rows=MAX_ROWS,
)
