"""The registry of listings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pharoah_protocol.plugins import discover
from pharoah_provider.listings._listing import Listing

GROUP = "pharoah.listings"
"""Entry points of this group are listings of other distributions."""


@cache
def listings() -> Mapping[str, Listing]:
    """All listings by name, in the order of the names. Raises PluginError that names the entry that cannot be used."""
    found = discover("pharoah_provider.listings", "LISTING", GROUP, Listing)
    return MappingProxyType(dict(sorted(found.items())))


def markdown_table() -> str:
    """All listings as the table of docs/provider.md."""
    lines = ["| command | lists | columns |", "|---|---|---|"]
    for listing in listings().values():
        columns = ", ".join(f"`{name}`" for name in (*listing.columns, *listing.wide_columns))
        lines.append(f"| `pharoah-provider {listing.name}` | {listing.help} | {columns} |")
    return "\n".join(lines) + "\n"
