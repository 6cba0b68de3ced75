"""The recipe of the newest release: which signals to collect in production, with the evidence."""

from __future__ import annotations

from dataclasses import asdict

from pharoah_archetypes.catalogue import catalogue
from pharoah_provider.listings._listing import Listing, ListingSources, Row


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each archetype, fault and feature."""
    release = await sources.storage.published.newest_release()
    if release is None:
        return []
    names = {entry.skeleton.archetype: entry.id for entry in catalogue().values()}
    return [
        {
            "release": release.release,
            **asdict(item),
            "name": names.get(item.archetype, item.archetype[:12]),
            "collect": item.collect,
            "effect": round(item.effect, 3),
            "low": round(item.low, 3),
            "high": round(item.high, 3),
        }
        for item in release.recipe
    ]


LISTING = Listing(
    name="recipe",
    help="which signals moved before failures of which archetype, and so are worth collecting",
    columns=("name", "fault", "feature", "collect", "effect", "low", "lead_seconds", "runs"),
    wide_columns=("signal", "high", "failed", "controls", "nodes"),
    rows=rows,
)
