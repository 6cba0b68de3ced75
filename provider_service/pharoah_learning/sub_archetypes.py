"""Sub-archetypes: which versions of a library make an archetype behave in the same way, and where that changes.

The versions of each archetype and library are clustered by their behaviour (`models.clusters`). Along the order of the
versions, change points say which step changed something that matters (`models.change_points`). A version that is tried
later is placed beside known ones: it belongs to a sub-archetype, or it is unlike anything known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import NamedTuple

import numpy as np

from pharoah_learning.evidence import Trial
from pharoah_learning.known_versions import (
    ACTIVATIONS,
    FAILED,
    STEP_TIME,
    Effect,
    Estimate,
    SubArchetype,
    VersionBehaviour,
    VersionChange,
)
from pharoah_learning.models.change_points import change_points
from pharoah_learning.models.clusters import Clusters, find_clusters, place, stability
from pharoah_learning.models.merge_tree import NOT_MEASURED, Array, Behaviours
from pharoah_learning.version_behaviour import VersionTable, tolerance, version_tables

_MIN_EFFECTS = {STEP_TIME: log(1.05), ACTIVATIONS: log(1.05)}
"""Smaller differences are not reported: 5 % of step time or memory. Jobs whose steps vary by more are restless."""
MIN_RATE_EFFECT = 0.10
RESAMPLING_SEED = 1


class LearnedVersions(NamedTuple):
    """What trials show about versions."""

    sub_archetypes: tuple[SubArchetype, ...]
    changes: tuple[VersionChange, ...]


class Place(StrEnum):
    """Where a version belongs that a release does not know."""

    KNOWN = "known"
    """It behaves as a sub-archetype does."""
    UNLIKE = "unlike anything known"
    NOT_COMPARED = "not compared"
    """It did not run beside a known version."""


@dataclass(frozen=True)
class PlacedVersion:
    """One new version of a library under one archetype."""

    archetype: str
    library: str
    version: str
    place: Place
    nearest: SubArchetype | None
    """The sub-archetype that behaves most similarly; None where it was not compared."""
    p: float
    """How probable so large a difference is for a version of that sub-archetype."""


def learn_versions(trials: Iterable[Trial]) -> LearnedVersions:
    """Sub-archetypes and changes of all archetypes and libraries whose versions can be compared."""
    tables = version_tables(trials)
    return LearnedVersions(
        sub_archetypes=tuple(one for table in tables for one in _sub_archetypes(table)),
        changes=tuple(one for table in tables for one in _changes(table)),
    )


def place_versions(known: Iterable[SubArchetype], trials: Iterable[Trial]) -> list[PlacedVersion]:
    """The versions in these trials that no sub-archetype names, where its archetype and library have any.

    The trials must hold known versions, too, beside which the new ones ran: a behaviour is relative to other versions.
    """
    groups: dict[tuple[str, str], list[SubArchetype]] = {}
    for one in known:
        groups.setdefault((one.archetype, one.library), []).append(one)
    return [
        placed
        for table in version_tables(trials)
        if (subs := groups.get((table.archetype, table.library)))
        for placed in _place(table, subs)
    ]


def _sub_archetypes(table: VersionTable) -> list[SubArchetype]:
    seen = table.varying
    found = find_clusters(seen)
    stable = _public(stability(seen, found, RESAMPLING_SEED))
    members = [
        [at for at in np.flatnonzero(found.label == cluster) if table.has_archetype[at]]
        for cluster in range(len(found.centre))
    ]
    return [
        SubArchetype(
            archetype=table.archetype,
            library=table.library,
            versions=tuple(_behaviour(table, int(at)) for at in part),
            stability=stable,
            title=table.title,
            together=table.together,
        )
        for part in members
        if part
    ]


def _behaviour(table: VersionTable, at: int) -> VersionBehaviour:
    behaviour = {
        name: Estimate(_public(value), _public(error))
        for name, value, error in zip(table.quantities, table.seen.mean[at], table.seen.error[at], strict=True)
        if error < NOT_MEASURED
    }
    return VersionBehaviour(table.versions[at], table.blocks[at], table.nodes[at], behaviour)


def _changes(table: VersionTable) -> list[VersionChange]:
    """One for each step from a version with the archetype to the next version that was tried."""
    cuts = [0, *change_points(table.varying), len(table.versions)]
    effects = {
        cuts[at]: _effects(table, slice(cuts[at - 1], cuts[at]), slice(cuts[at], cuts[at + 1]))
        for at in range(1, len(cuts) - 1)
    }
    return [
        VersionChange(
            archetype=table.archetype,
            library=table.library,
            before=table.versions[after - 1],
            after=table.versions[after],
            effects=effects.get(after, ()),
            same_code=_same(table.code[after - 1], table.code[after]),
            title=table.title,
            together=table.together,
        )
        for after in range(1, len(table.versions))
        if table.has_archetype[after - 1]
    ]


def _public(value: float) -> float:
    """A number of a release, without the last digits, which differ between machines; an auditor compares it."""
    return round(float(value), 5)


def _same(before: frozenset[str], after: frozenset[str]) -> bool | None:
    return before == after if before and after else None


def _effects(table: VersionTable, before: slice, after: slice) -> tuple[Effect, ...]:
    """The quantities that differ between two pieces of the series by more than noise and by enough to matter."""
    (left, left_error), (right, right_error) = (_mean(table.seen, part) for part in (before, after))
    found = []
    for at, name in enumerate(table.quantities):
        value, half = right[at] - left[at], 1.96 * float(np.hypot(left_error[at], right_error[at]))
        if abs(value) > max(half, _least_effect(name)):
            found.append(Effect(name, _public(value), _public(value - half), _public(value + half)))
    return tuple(found)


def _mean(seen: Behaviours, part: slice) -> tuple[Array, Array]:
    weight = seen.weight[part]
    return (weight * seen.mean[part]).sum(axis=0) / weight.sum(axis=0), weight.sum(axis=0) ** -0.5


def _least_effect(quantity: str) -> float:
    """A structure that is another one matters, however similar it is."""
    default = MIN_RATE_EFFECT if quantity.startswith(FAILED) else 0.0
    return _MIN_EFFECTS.get(quantity, default)


def _place(table: VersionTable, known: Sequence[SubArchetype]) -> list[PlacedVersion]:
    cluster_of = {version.version: at for at, one in enumerate(known) for version in one.versions}
    new = [at for at, version in enumerate(table.versions) if version not in cluster_of]
    beside = [at for at, version in enumerate(table.versions) if version in cluster_of]
    quantities = sorted({*table.quantities, *(name for one in known for name in one.centre)})
    centres = [one.centre for one in known]
    clusters = Clusters(
        label=np.arange(len(known)),
        centre=np.array([[_get_estimate(centre, name).value for name in quantities] for centre in centres]),
        error=np.array([[_get_estimate(centre, name).error for name in quantities] for centre in centres]),
    )
    seen = _columns(table, quantities)
    if not beside:
        return [_not_compared(table, at) for at in new]
    # Both series are relative to means of their own: the known versions in both show the difference.
    label = [cluster_of[table.versions[at]] for at in beside]
    weight = 1 / (seen.error[beside] ** 2 + clusters.error[label] ** 2)
    shift = (weight * (clusters.centre[label] - seen.mean[beside])).sum(axis=0) / weight.sum(axis=0)
    found = []
    for at in new:
        measured = seen.error[at] < NOT_MEASURED
        error = np.sqrt(seen.error[at] ** 2 + 1 / weight.sum(axis=0))[measured]
        chosen = Clusters(clusters.label, clusters.centre[:, measured], clusters.error[:, measured])
        nearest = place((seen.mean[at] + shift)[measured], error, chosen)
        where = Place.KNOWN if nearest.is_known else Place.UNLIKE
        identity = (table.archetype, table.library, table.versions[at])
        found.append(PlacedVersion(*identity, where, known[nearest.cluster], nearest.p))
    return found


def _get_estimate(centre: dict[str, Estimate], quantity: str) -> Estimate:
    """The estimate of a sub-archetype. An outcome that no known version has ever shown has a share of 0."""
    unmeasured = Estimate(0.0, tolerance(quantity) if quantity.startswith(FAILED) else NOT_MEASURED)
    return centre.get(quantity, unmeasured)


def _columns(table: VersionTable, quantities: Sequence[str]) -> Behaviours:
    """The behaviours of a table in the order of `quantities`. An outcome that did not occur has a share of 0."""
    at = {name: number for number, name in enumerate(table.quantities)}
    ones = np.ones(len(table.versions))
    mean = [table.seen.mean[:, at[name]] if name in at else 0 * ones for name in quantities]
    error = [
        table.seen.error[:, at[name]] if name in at else _get_estimate({}, name).error * ones for name in quantities
    ]
    return Behaviours(np.stack(mean, axis=1), np.stack(error, axis=1))


def _not_compared(table: VersionTable, at: int) -> PlacedVersion:
    return PlacedVersion(table.archetype, table.library, table.versions[at], Place.NOT_COMPARED, None, 1.0)
