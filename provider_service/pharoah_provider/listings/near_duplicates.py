"""Rows of the newest release about what similar archetypes have in common."""

from __future__ import annotations

from pharoah_protocol.vocabulary import RowKind
from pharoah_provider.listings._learned_rows import list_learned_rows
from pharoah_provider.listings._listing import Listing

LISTING = Listing(
    name="near-duplicates",
    help="rows of the newest release about near duplicates",
    columns=("id", "severity", "outcome", "failed", "base", "nodes"),
    wide_columns=("scope",),
    rows=list_learned_rows(RowKind.BAND),
)
