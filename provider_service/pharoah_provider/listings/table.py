"""The incompatibility table of the newest release."""

from __future__ import annotations

from pharoah_protocol.vocabulary import RowKind
from pharoah_provider.listings._learned_rows import list_learned_rows
from pharoah_provider.listings._listing import Listing

LISTING = Listing(
    name="table",
    help="the incompatibility table of the newest release",
    columns=("id", "severity", "outcome", "failed", "nodes", "title"),
    wide_columns=("base", "scope", "rung"),
    rows=list_learned_rows(RowKind.ARCHETYPE, RowKind.PSEUDONYM, RowKind.NODE),
)
