"""The registry of listings."""

from __future__ import annotations

from pharoah_protocol.registry import Registry
from pharoah_provider.listings._listing import Listing

GROUP = "pharoah.listings"
"""Entry points of this group are listings of other distributions."""

LISTINGS = Registry(Listing, "pharoah_provider.listings", GROUP)
"""All listings by name, in the order of the names."""


def markdown_table() -> str:
    """All listings as the table of docs/provider/listings.md."""
    lines = ["| command | lists | columns |", "|---|---|---|"]
    for listing in LISTINGS:
        columns = ", ".join(f"`{name}`" for name in (*listing.columns, *listing.wide_columns))
        lines.append(f"| `pharoah-provider {listing.name}` | {listing.whole_help} | {columns} |")
    return "\n".join(lines) + "\n"
