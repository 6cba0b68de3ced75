"""How versions of a library behave, from the cells of campaigns.

Versions are compared where everything else is equal: workload, settings, context and the versions of all other
libraries; within one block where the block holds another version, else on one node, else anywhere in the context.
Repeats within a block count once. A cell whose structure another version changes belongs to the comparison: the
structure is a part of the behaviour.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import NamedTuple

import numpy as np

from pharoah_archetypes import Fingerprint
from pharoah_archetypes.canonical import GrammarError, Skeleton, parse
from pharoah_archetypes.similarity import similarity
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.known_versions import ACTIVATIONS, FAILED, STEP_TIME, STRUCTURE
from pharoah_learning.models.merge_tree import NOT_MEASURED, Array, Behaviours, Labels
from pharoah_learning.models.version_effects import Effects, version_effects
from pharoah_learning.version_order import public_version, version_key
from pharoah_protocol.vocabulary import ENVIRONMENT, Outcome

RATE_TOLERANCE = 0.02
_TOLERANCES = {STEP_TIME: 0.01, ACTIVATIONS: 0.01, STRUCTURE: 0.001}
"""Standard deviations of differences that do not matter: 1 % of step time or memory, 2 % of failing cells. Nothing
measures a structure with noise."""
_OTHER_STRUCTURE = 0.01
"""The least distance of a skeleton that is not the archetype; sequences with equal counts of parts can differ."""


class Job(NamedTuple):
    """What a cell trains."""

    workload: str
    settings: str
    """As JSON, apart from the environment."""


class Cell(NamedTuple):
    """A trial as it is compared here."""

    fingerprint: Fingerprint
    versions: dict[str, str]
    """Public versions of all libraries."""
    job: Job
    context_id: str
    device_id: str
    node: str
    block: str
    """Its block, or its own number where blocks were not recorded."""
    in_block: bool
    outcome: Outcome
    step_time: float
    """Logarithm of seconds; NaN without two steps."""


@dataclass(frozen=True)
class VersionTable:
    """The versions of one library, as the cells of one archetype show them."""

    archetype: str
    library: str
    together: tuple[str, ...]
    """Libraries whose version is a function of this library's, and not constant."""
    versions: tuple[str, ...]
    """From old to new."""
    quantities: tuple[str, ...]
    seen: Behaviours
    """Shape (versions, quantities), relative to the mean of all versions; errors hold the tolerance."""
    blocks: tuple[int, ...]
    nodes: tuple[int, ...]
    has_archetype: tuple[bool, ...]
    """Whether cells with the version have this archetype, or another one in its place."""
    code: tuple[frozenset[str], ...]
    """Digests of the functions of the library that ran; empty where they were not recorded."""
    title: str

    @property
    def varying(self) -> Behaviours:
        """The quantities in which versions differ by more than the tolerance; all where they differ in none."""
        mean = self.seen.mean
        varies = np.array([np.ptp(mean[:, at]) > tolerance(name) for at, name in enumerate(self.quantities)])
        varies |= not varies.any()
        return Behaviours(mean[:, varies], self.seen.error[:, varies])


def tolerance(quantity: str) -> float:
    """The standard deviation of differences in a quantity that do not matter."""
    return _TOLERANCES.get(quantity, RATE_TOLERANCE)


def version_tables(trials: Iterable[Trial]) -> list[VersionTable]:
    """One table for each archetype and each library of which at least two versions can be compared.

    The fingerprints of the trials must be readable, as those of `usable_trials` are.
    """
    cells = list(_cells(trials))
    at_jobs: dict[Job, list[Cell]] = defaultdict(list)
    jobs: dict[str, set[Job]] = defaultdict(set)
    for cell in cells:
        at_jobs[cell.job].append(cell)
        jobs[cell.fingerprint.archetype].add(cell.job)
    return [table for archetype in sorted(jobs) for table in _tables(archetype, _in_order(at_jobs, jobs[archetype]))]


def _in_order(at_jobs: dict[Job, list[Cell]], jobs: set[Job]) -> list[Cell]:
    return [cell for job in sorted(jobs) for cell in at_jobs[job]]


def _cells(trials: Iterable[Trial]) -> Iterator[Cell]:
    read: dict[str, Fingerprint] = {}
    for number, trial in enumerate(on_their_device(trials)):
        if trial.fingerprint not in read:
            read[trial.fingerprint] = Fingerprint.from_json(trial.fingerprint)
        fingerprint = read[trial.fingerprint]
        steps = trial.step_seconds[1:]
        # The versions are what is compared, so the environment is no part of what must be equal.
        settings = json.dumps({k: v for k, v in trial.settings.items() if k != ENVIRONMENT}, sort_keys=True)
        yield Cell(
            fingerprint=fingerprint,
            versions={name: public_version(version) for name, version in sorted(fingerprint.versions.items())},
            job=Job(trial.workload, settings),
            context_id=trial.context_id,
            device_id=trial.device_id,
            node=trial.node,
            block=trial.block or str(number),
            in_block=bool(trial.block),
            outcome=trial.outcome,
            step_time=log(median(steps)) if steps and trial.outcome is Outcome.OK else np.nan,
        )


def _tables(archetype: str, cells: Sequence[Cell]) -> Iterator[VersionTable]:
    """Tables of all libraries; `cells` are those of the jobs that have the archetype with some version."""
    grammar = next(cell.fingerprint.grammar for cell in cells if cell.fingerprint.archetype == archetype)
    distances = _distances(archetype, grammar, cells)
    for library in sorted({name for cell in cells for name in cell.versions}):
        known = [cell for cell in cells if library in cell.versions]
        versions = sorted({cell.versions[library] for cell in known}, key=lambda one: (version_key(one), one))
        if len(versions) > 1 and (table := _table(archetype, library, versions, known, distances)) is not None:
            yield table


def _distances(archetype: str, grammar: str, cells: Sequence[Cell]) -> dict[str, float]:
    """Archetype to how far it is from this one."""
    own = _skeleton(grammar)
    found = {archetype: 0.0}
    for cell in cells:
        other = cell.fingerprint
        if other.archetype not in found:
            skeleton = _skeleton(other.grammar)
            likeness = similarity(own, skeleton) if own is not None and skeleton is not None else 0.0
            found[other.archetype] = max(1.0 - likeness, _OTHER_STRUCTURE)
    return found


def _skeleton(grammar: str) -> Skeleton | None:
    try:
        return parse(grammar)
    except GrammarError:
        return None


def _table(
    archetype: str, library: str, versions: Sequence[str], cells: Sequence[Cell], distances: dict[str, float]
) -> VersionTable | None:
    """None where fewer than two versions can be compared."""
    bound = _find_determined(library, cells)
    units = _units(library, versions, cells, bound, distances)
    if not units.version.size:
        return None
    effects = {
        name: version_effects(values, units.version, units.stratum, len(versions))
        for name, values in units.measured.items()
    }
    compared = [at for at in range(len(versions)) if np.isfinite(effects[STRUCTURE].value[at])]
    if len(compared) < 2:
        return None
    columns = [_column(name, effect) for name, effect in effects.items()]
    kept = [[cell for cell in cells if cell.versions[library] == versions[at]] for at in compared]
    own = [[cell for cell in part if cell.fingerprint.archetype == archetype] for part in kept]
    return VersionTable(
        archetype=archetype,
        library=library,
        together=tuple(name for name in bound if len({cell.versions.get(name) for cell in cells}) > 1),
        versions=tuple(versions[at] for at in compared),
        quantities=tuple(effects),
        seen=Behaviours(*(np.stack(part, axis=1)[compared] for part in zip(*columns, strict=True))),
        blocks=tuple(int(effects[STRUCTURE].measurements[at]) for at in compared),
        nodes=tuple(len({cell.node for cell in part}) for part in kept),
        has_archetype=tuple(bool(part) for part in own),
        code=tuple(frozenset(cell.fingerprint.code.get(library, "") for cell in part) - {""} for part in kept),
        title=", ".join(sorted({cell.job.workload for part in own for cell in part})),
    )


def _find_determined(library: str, cells: Sequence[Cell]) -> list[str]:
    """The other libraries of which each version of this one has seen one version only."""
    partners: dict[str, dict[str, set[str | None]]] = defaultdict(lambda: defaultdict(set))
    names = sorted({name for cell in cells for name in cell.versions} - {library})
    for cell in cells:
        for name in names:
            partners[name][cell.versions[library]].add(cell.versions.get(name))
    return [name for name in names if all(len(found) == 1 for found in partners[name].values())]


class _Units(NamedTuple):
    """Measurements: one for each version in each block."""

    version: Labels
    stratum: Labels
    measured: dict[str, Array]
    """By quantity."""


def _units(
    library: str, versions: Sequence[str], cells: Sequence[Cell], bound: Sequence[str], distances: dict[str, float]
) -> _Units:
    number = {version: at for at, version in enumerate(versions)}
    strata: dict[Hashable, set[int]] = defaultdict(set)
    levels = [_levels(cell, library, bound) for cell in cells]
    for cell, keys in zip(cells, levels, strict=True):
        for key in keys:
            strata[key].add(number[cell.versions[library]])
    units: dict[tuple[Hashable, str, str, int], list[Cell]] = defaultdict(list)
    for cell, keys in zip(cells, levels, strict=True):
        finest = next((key for key in keys if len(strata[key]) > 1), None)
        if finest is not None:
            units[finest, cell.node, cell.block, number[cell.versions[library]]].append(cell)
    codes: dict[Hashable, int] = {}
    stratum = [codes.setdefault(key[0], len(codes)) for key in units]
    outcomes = sorted({cell.outcome for cell in cells} - {Outcome.OK})
    measured = [_measure(part, outcomes, distances) for part in units.values()]
    return _Units(
        version=np.array([key[3] for key in units], dtype=np.int64),
        stratum=np.array(stratum, dtype=np.int64),
        measured={name: np.array([one[name] for one in measured]) for name in (measured[0] if measured else ())},
    )


def _levels(cell: Cell, library: str, bound: Sequence[str]) -> list[Hashable]:
    """The strata that a cell can be compared in, from fine to coarse."""
    others = tuple((name, version) for name, version in cell.versions.items() if name != library and name not in bound)
    same = (cell.job, cell.context_id, cell.device_id, others)
    return [*([(*same, cell.node, cell.block)] if cell.in_block else []), (*same, cell.node), same]


def _measure(cells: Sequence[Cell], outcomes: Sequence[Outcome], distances: dict[str, float]) -> dict[str, float]:
    """The quantities of one version in one block."""
    times = [cell.step_time for cell in cells if np.isfinite(cell.step_time)]
    return {
        STEP_TIME: float(np.mean(times)) if times else np.nan,
        ACTIVATIONS: float(np.mean([log(1 + cell.fingerprint.sizes["activations"]) for cell in cells])),
        STRUCTURE: float(np.mean([distances[cell.fingerprint.archetype] for cell in cells])),
        **{FAILED + one.value: float(np.mean([cell.outcome is one for cell in cells])) for one in outcomes},
    }


def _column(name: str, effects: Effects) -> tuple[Array, Array]:
    """Values and standard errors of one quantity."""
    value, variance = effects.value, effects.variance
    if name.startswith(FAILED):
        # A version that always or never fails shows no noise, so its share counts as one cell less certain.
        share = np.clip(value - np.nanmin(value), 0, 1)
        share = (share * effects.measurements + 0.5) / (effects.measurements + 1)
        variance = np.fmax(variance, share * (1 - share) / np.maximum(effects.measurements, 1))
    elif name != STEP_TIME:
        variance = np.where(np.isnan(variance), 0.0, variance)
    measured = np.isfinite(value) & np.isfinite(variance)
    error = np.sqrt(np.where(measured, variance, NOT_MEASURED**2) + tolerance(name) ** 2)
    return np.where(measured, value, 0.0), error
