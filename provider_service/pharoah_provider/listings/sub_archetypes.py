"""Sub-archetypes of the newest release: which versions make an archetype behave in the same way."""

from __future__ import annotations

from dataclasses import asdict

from pharoah_provider.listings._listing import Listing, ListingSources, Row


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each cluster of versions of a library under an archetype; `-o json` has each version's numbers."""
    release = await sources.storage.published.newest_release()
    if release is None:
        return []
    return [
        {
            "release": release.release,
            "archetype": one.archetype,
            "library": one.library,
            "versions": one.range,
            "behaviour": one.in_words,
            "title": one.title,
            "stability": one.stability,
            "expanded": len(one.expanded_versions),
            "together": ", ".join(one.together),
            "sub_archetype": asdict(one),
        }
        for one in release.sub_archetypes
    ]


LISTING = Listing(
    name="sub-archetypes",
    help="versions of libraries that behave the same, beside the mean of all versions of the archetype",
    columns=("library", "versions", "behaviour", "title"),
    wide_columns=("stability", "expanded", "together"),
    rows=rows,
)
