"""`pharoah-provider draw sub-archetypes|version-changes`: pictures of versions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pharoah_provider import channel
from pharoah_provider.cli._calls import rows_of
from pharoah_serving.errors import ProviderError
from pharoah_system.standard_streams import show

if TYPE_CHECKING:
    from pharoah_learning.known_versions import SubArchetype, VersionChange


class _Of(NamedTuple):
    """What a picture is about."""

    archetype: str
    library: str


def add_parser(pictures: Any) -> None:
    """Add these pictures."""
    for name, what, run in (
        ("sub-archetypes", "the tree of versions that behave the same", _draw_tree),
        ("version-changes", "what each version measures, and where something changes", _draw_chart),
    ):
        one = pictures.add_parser(name, help=what, description=f"Draw {what}.")
        one.add_argument("--archetype", default="", metavar="NAME", help="the first digits of the archetype's name")
        one.add_argument("--library", default="", metavar="NAME", help="the library, such as transformers")
        one.add_argument("--out", type=Path, required=True, metavar="FILE", help="a PNG, SVG or PDF, by the ending")
        channel.add_options(one)
        one.set_defaults(run=run)


def _draw_tree(arguments: argparse.Namespace) -> int:
    """Raises ProviderError where the choice leaves none or several, and for a file that cannot be written."""
    chosen = _choose(arguments)
    from pharoah_provider.pictures.version_tree import draw_version_tree  # here and behind the call: it takes a second

    draw_version_tree(arguments.out, chosen)
    show(arguments.out)
    return 0


def _draw_chart(arguments: argparse.Namespace) -> int:
    """Raises as `_draw_tree` does."""
    chosen = _choose(arguments)
    rows = rows_of(arguments, "version-changes")
    from pharoah_learning.known_versions import VersionChange
    from pharoah_provider.pictures.version_chart import draw_version_chart

    changes = [VersionChange.from_dict(row["version_change"]) for row in rows]
    about = _describe(chosen[0])
    draw_version_chart(arguments.out, chosen, [change for change in changes if _describe(change) == about])
    show(arguments.out)
    return 0


def _choose(arguments: argparse.Namespace) -> list[SubArchetype]:
    """The sub-archetypes of one archetype and library with several versions. Raises ProviderError."""
    groups: dict[_Of, list[SubArchetype]] = {}
    rows = rows_of(arguments, "sub-archetypes")
    from pharoah_learning.known_versions import SubArchetype

    for row in rows:
        one = SubArchetype.from_dict(row["sub_archetype"])
        if one.archetype.startswith(arguments.archetype) and arguments.library in ("", one.library):
            groups.setdefault(_describe(one), []).append(one)
    several = {about: part for about, part in groups.items() if sum(len(one.versions) for one in part) > 1}
    if len(several) != 1:
        named = "".join(f"\n  --archetype {one.archetype[:12]} --library {one.library}" for one in sorted(several))
        found = f"choose one of{named}" if several else "no archetype has several versions (see `sub-archetypes`)"
        raise ProviderError(f"--archetype, --library: {found}")
    return next(iter(several.values()))


def _describe(one: SubArchetype | VersionChange) -> _Of:
    return _Of(archetype=one.archetype, library=one.library)
