"""Versions that cells have run with since the newest release, and what known versions they behave like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row

if TYPE_CHECKING:
    from pharoah_learning.evidence import Trial
    from pharoah_learning.known_versions import SubArchetype
    from pharoah_learning.sub_archetypes import PlacedVersion


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each archetype, library and version that the newest release does not know."""
    release = await sources.storage.published.newest_release()
    if release is None or not release.sub_archetypes:
        return []
    trials = await sources.storage.evidence.trials()
    return [
        {
            "release": release.release,
            "archetype": one.archetype,
            "library": one.library,
            "version": one.version,
            "place": one.place,
            "nearest": one.nearest.range if one.nearest else "",
            "p": one.p,
            "title": one.nearest.title if one.nearest else "",
        }
        for one in await asyncio.to_thread(_place, release.sub_archetypes, trials)
    ]


def _place(known: tuple[SubArchetype, ...], trials: list[Trial]) -> list[PlacedVersion]:
    from pharoah_learning.evidence import LeftOut
    from pharoah_learning.sub_archetypes import place_versions
    from pharoah_learning.usable_trials import usable_trials

    return place_versions(known, usable_trials(trials, LeftOut()))


LISTING = Listing(
    name="new-versions",
    help="versions that were tried since the newest release: as known ones, or unlike anything known",
    columns=("library", "version", "place", "nearest", "title"),
    wide_columns=("p",),
    rows=rows,
)
