"""Names of nodes as one value of a row."""

from __future__ import annotations

from collections.abc import Sequence

MAX_NAMED = 8
"""Nodes that a row names. A listing has a row for each job and context, and comes in one message of at most 64 MiB
(`channel.MAX_LISTING_BYTES`): all 4,000 names of a large context would fill it after 1,500 rows."""


def few_names(names: Sequence[str], joint: str = "+", before_rest: str = " and ") -> str:
    """The first names, and how many more there are, such as `n1+n2 and 3998 more`."""
    named = joint.join(names[:MAX_NAMED])
    return f"{named}{before_rest}{len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else named
