"""The trials of a campaign over versions: what came of each family in each version, and where that changes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from statistics import median
from typing import NamedTuple

import numpy as np

from pharoah_archetypes import Fingerprint
from pharoah_learning.evidence import Trial
from pharoah_learning.models.change_points import change_points
from pharoah_learning.models.merge_tree import Behaviours
from pharoah_protocol.vocabulary import ENVIRONMENT, Outcome

FLOOR = 0.05
"""The least change of log step time that is called one: smaller ones do not matter to anybody."""
WARM_UP_STEPS = 2
"""Steps of a cell that do not count: the first ones load kernels and allocate."""


@dataclass
class VersionCell:
    """The repeats of one family in one version."""

    outcomes: list[Outcome] = field(default_factory=list)
    log_seconds: dict[str, float] = field(default_factory=dict)
    """Block to the logarithm of the median step time there."""
    structures: set[str] = field(default_factory=set)
    """Structures that the agents state, without versions."""
    code: dict[str, str] = field(default_factory=dict)
    """What the provider's own dry run recorded; empty where it could not dry-run the cell."""
    detail: str = ""

    @property
    def worked(self) -> bool:
        """Whether all repeats did."""
        return set(self.outcomes) == {Outcome.OK}


class Pair(NamedTuple):
    """Two versions of one family."""

    family: str
    earlier: str
    later: str


@dataclass(frozen=True)
class Campaign:
    """All results, with the versions from old to new."""

    versions: tuple[str, ...]
    families: tuple[str, ...]
    cells: dict[tuple[str, str], VersionCell]
    """By version and family."""

    @property
    def runs(self) -> int:
        return sum(len(cell.outcomes) for cell in self.cells.values())

    def cell(self, version: str, family: str) -> VersionCell | None:
        return self.cells.get((version, family))

    # what changes

    def neighbours(self) -> Iterator[Pair]:
        """Pairs of a version and the next one that was tried."""
        for family in self.families:
            tried = [version for version in self.versions if (version, family) in self.cells]
            yield from (Pair(family, earlier, later) for earlier, later in itertools.pairwise(tried))

    def differs(self, pair: Pair) -> bool:
        """Whether outcome or structure differ."""
        return self._outcome_differs(pair) or self._structure_differs(pair)

    def outcome_changes(self) -> list[Pair]:
        return [pair for pair in self.neighbours() if self._outcome_differs(pair)]

    def structure_changes(self) -> list[Pair]:
        return [pair for pair in self.neighbours() if self._structure_differs(pair)]

    def speed_changes(self) -> list[Pair]:
        """Neighbours between which a piece of another speed begins."""
        return [pair for pair in self.neighbours() if pair.later in self._pieces[pair.family]]

    def slower(self, pair: Pair) -> bool:
        """Whether the piece of the later version is slower than the one before."""
        pieces = self._pieces[pair.family]
        return pieces[pair.later] > 0

    # what executed code says

    def same_code(self) -> list[Pair]:
        """All pairs of versions that execute the same code; only code is compared here, not the structure."""
        return self._pairs(lambda cell, _: str(sorted(cell.code.items())) if cell.code else "")

    def same_minor(self) -> list[Pair]:
        """The simple rule: versions that differ in the last number alone are the same."""
        return self._pairs(lambda _, version: version.rpartition(".")[0])

    def skipped_runs(self, same: Iterable[Pair]) -> int:
        """Runs of versions that need not run, because an earlier one is the same."""
        later = {(pair.later, pair.family) for pair in same}
        return sum(len(self.cells[place].outcomes) for place in later)

    def missed(self, same: Iterable[Pair]) -> list[Pair]:
        """Pairs that count as the same and differ in outcome or structure."""
        return [pair for pair in same if self.differs(pair)]

    def missed_speed(self, same: Iterable[Pair]) -> list[Pair]:
        """Neighbours that count as the same, and between which a piece of another speed begins."""
        return sorted(set(same) & set(self.speed_changes()))

    # speed

    @cached_property
    def speeds(self) -> dict[tuple[str, str], float]:
        """Logarithm of the step time of version and family relative to the newest version that works."""
        found = {}
        for family in self.families:
            versions, values = self._table(family)
            for version, mean in zip(versions, values.mean(axis=1) if versions else (), strict=True):
                found[version, family] = float(mean - values[-1].mean())
        return found

    @cached_property
    def noise(self) -> float:
        """Standard deviation of log step time between repeats, without the effects of versions and blocks."""
        squares, free = 0.0, 0
        for family in self.families:
            versions, values = self._table(family)
            if len(versions) > 1 and values.shape[1] > 1:
                residual = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
                squares += float((residual**2).sum())
                free += (values.shape[0] - 1) * (values.shape[1] - 1)
        return (squares / free) ** 0.5 if free else 0.0

    def shown(self, version: str, family: str) -> str:
        """What a table shows of a version and a family."""
        cell = self.cell(version, family)
        if cell is None:
            return "-"
        text = f"{np.exp(self.speeds[version, family]):.2f}" if (version, family) in self.speeds else "fails"
        for pair in self.neighbours():
            if (pair.family, pair.later) == (family, version):
                text += " =" if pair in self._same_code else ""
                text += " *" if self._structure_differs(pair) else ""
                text += (" >" if self.slower(pair) else " <") if pair in self.speed_changes() else ""
        return text

    @cached_property
    def _same_code(self) -> frozenset[Pair]:
        return frozenset(self.same_code())

    @cached_property
    def _pieces(self) -> dict[str, dict[str, float]]:
        """Family to the versions that begin a piece of another speed, and how much slower it is (logarithm)."""
        return {family: self._pieces_of(family) for family in self.families}

    def _pieces_of(self, family: str) -> dict[str, float]:
        versions, values = self._table(family)
        if len(versions) < 2 or not self.noise:
            return {}
        means = (values - values.mean(axis=0)).mean(axis=1, keepdims=True)
        cuts = change_points(Behaviours(means, np.full(means.shape, self.noise / values.shape[1] ** 0.5)))
        pieces = [float(piece.mean()) for piece in np.split(means, cuts)]
        steps = zip(cuts, itertools.pairwise(pieces), strict=True)
        return {versions[cut]: after - before for cut, (before, after) in steps if abs(after - before) >= FLOOR}

    def _table(self, family: str) -> tuple[list[str], np.ndarray]:
        """Versions that work, and their log step times, shape (versions, blocks), in blocks that hold all of them."""
        working = {version: cell.log_seconds for version in self.versions if (cell := self._worked(version, family))}
        blocks = sorted(set.intersection(*(set(values) for values in working.values()))) if working else []
        if not blocks:
            return [], np.zeros((0, 0))
        return list(working), np.array([[values[block] for block in blocks] for values in working.values()])

    def _worked(self, version: str, family: str) -> VersionCell | None:
        cell = self.cell(version, family)
        return cell if cell and cell.worked else None

    def _outcome_differs(self, pair: Pair) -> bool:
        earlier, later = self._of(pair)
        return set(earlier.outcomes) != set(later.outcomes)

    def _structure_differs(self, pair: Pair) -> bool:
        earlier, later = self._of(pair)
        return bool(earlier.structures and later.structures) and earlier.structures != later.structures

    def _of(self, pair: Pair) -> tuple[VersionCell, VersionCell]:
        return self.cells[pair.earlier, pair.family], self.cells[pair.later, pair.family]

    def _pairs(self, key: Callable[[VersionCell, str], str]) -> list[Pair]:
        """All pairs of versions of a family with an equal key that is not empty."""
        found = []
        for family in self.families:
            groups: dict[str, list[str]] = defaultdict(list)
            for version in self.versions:
                if (cell := self.cell(version, family)) and (text := key(cell, version)):
                    groups[text].append(version)
            for group in groups.values():
                found += [Pair(family, a, b) for at, b in enumerate(group) for a in group[:at]]
        return found


def read_campaign(trials: Sequence[Trial], order: Sequence[str], details: Mapping[str, str]) -> Campaign:
    """The results of a campaign. `order`: texts of the environments from old to new; `details`: trial id to error."""
    versions = {text: text.partition("==")[2] for text in order}
    cells: dict[tuple[str, str], VersionCell] = defaultdict(VersionCell)
    for trial in trials:
        version = versions[str(trial.settings[ENVIRONMENT])]
        cell = cells[version, trial.workload]
        cell.outcomes.append(trial.outcome)
        cell.detail = cell.detail or details.get(trial.trial_id, "")
        steps = trial.step_seconds[WARM_UP_STEPS:]
        if trial.outcome is Outcome.OK and steps:
            cell.log_seconds[trial.block] = log(median(steps))
        if trial.fingerprint:
            cell.structures.add(_structure(Fingerprint.from_json(trial.fingerprint)))
        for text in trial.own_fingerprints:
            cell.code = Fingerprint.from_json(text).code
    families = sorted({family for _, family in cells})
    return Campaign(tuple(versions.values()), tuple(families), dict(cells))


def _structure(fingerprint: Fingerprint) -> str:
    parts = (fingerprint.archetype, sorted(fingerprint.features.items()), sorted(fingerprint.sizes.items()))
    return str(parts)
