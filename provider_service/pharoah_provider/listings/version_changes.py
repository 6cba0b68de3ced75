"""Changes from one version to the next in the newest release, with those that change nothing meaningful."""

from __future__ import annotations

from dataclasses import asdict

from pharoah_provider.listings._listing import Listing, ListingSources, Row

_CODE = {True: "same", False: "other", None: ""}


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each archetype, library and step from a version to the next one that was tried."""
    release = await sources.storage.published.newest_release()
    if release is None:
        return []
    return [
        {
            "release": release.release,
            "archetype": one.archetype,
            "library": one.library,
            "before": one.before,
            "after": one.after,
            "change": ", ".join(effect.in_words for effect in one.effects) or "nothing meaningful",
            "title": one.title,
            "code": _CODE[one.same_code],
            "together": ", ".join(one.together),
            "version_change": asdict(one),
        }
        for one in release.version_changes
    ]


LISTING = Listing(
    name="version-changes",
    help="what each version of a library changes, with intervals at 95 %, and which change nothing meaningful",
    columns=("library", "before", "after", "change", "title"),
    wide_columns=("code", "together"),
    rows=rows,
)
