"""Listings: what operators can look at.

A listing is one file here, or an entry point of the group `pharoah.listings` in another distribution: an object of the
type `Listing`. The commands of `pharoah-provider`, the request `Operator.List` and the table in
docs/provider/listings.md are made from the registry, so that a new listing needs no other change.
"""

from pharoah_provider.listings._listing import MAX_LONG_ROWS, MAX_ROWS, Listing, ListingSources, Row, newest, select
from pharoah_provider.listings._registry import GROUP, LISTINGS, markdown_table

__all__ = [
    "GROUP",
    "LISTINGS",
    "MAX_LONG_ROWS",
    "MAX_ROWS",
    "Listing",
    "ListingSources",
    "Row",
    "markdown_table",
    "newest",
    "select",
]
