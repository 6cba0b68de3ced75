"""Pairs of the newest release: which archetypes fail on nodes with which facts, in runs that tenants have revealed."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, ListingSources, Row


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each pair, the most certain first."""
    release = await sources.storage.published.newest_release()
    return [
        {
            "archetype": pair.archetype[:8],
            "fact": pair.context,
            "call": pair.call,
            "failed": f"{pair.failures}/{pair.runs}",
            "others": f"{pair.other_failures}/{pair.other_runs}",
            "odds_ratio": f"{pair.odds_ratio:.1f} [{pair.low:.1f}, {pair.high:.1f}]",
            "q": float(f"{pair.q:.2g}"),
            "sensitivity": float(f"{pair.matched.sensitivity:.2g}"),
            "organisations": pair.clusters,
            "reason": pair.reason,
        }
        for pair in (release.pairs if release else ())
    ]


LISTING = Listing(
    name="pairs",
    help="archetypes that fail on nodes with a fact, in runs that tenants revealed; randomised cells decide",
    columns=("archetype", "fact", "call", "failed", "others", "odds_ratio"),
    wide_columns=("q", "sensitivity", "organisations", "reason"),
    rows=rows,
)
