"""Trials with the tokens of their rungs, and the controls of some of them.

A control is a trial of the same workload that differs in exactly one thing: one setting (in any group), or the group
(the same settings). A group is a context or a device model, as the scope asks for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pharoah_archetypes import RUNGS, Fingerprint, rung_tokens, size_position
from pharoah_learning.evidence import Trial
from pharoah_learning.limits import Limit, limit_named
from pharoah_protocol.vocabulary import Outcome, Rung, Scope

WAITED_IN_VAIN = (Outcome.TIMEOUT, Outcome.HANG)

Tokens = tuple[str, ...]


class Setting(NamedTuple):
    """One setting of a cell."""

    name: str
    value: object


class Point(NamedTuple):
    """What a cell trains."""

    workload: str
    settings: tuple[Setting, ...]
    """In the order of their names, each once. A setting that is absent has the workload's default."""

    def without(self, setting: Setting) -> Point:
        """The point that lacks a setting."""
        return self._replace(settings=tuple(one for one in self.settings if one.name != setting.name))

    def differing(self, other: Point) -> set[str]:
        """The names of the settings in which two points differ; an absent value is a value too."""
        own, theirs = dict(self.settings), dict(other.settings)
        return {name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name)}


@dataclass(frozen=True)
class KnownTrial:
    """A trial with the tokens of its rungs."""

    row: Trial
    point: Point
    tokens: dict[Rung, Tokens]
    """The rungs that this trial says something about."""
    size: int
    """Its position in its size classes."""

    @classmethod
    def from_trial(cls, trial: Trial) -> KnownTrial:
        """Read the fingerprint of a trial, which must be readable."""
        fingerprint = Fingerprint.from_json(trial.fingerprint)
        tokens = {rung: rung_tokens(fingerprint, rung) for rung in RUNGS}
        if tokens[Rung.COLLECTIVES] or trial.outcome is Outcome.MEMORY:
            del tokens[Rung.ONE_DEVICE]  # how much of a model one device holds depends on how it is distributed
        if not tokens[Rung.COLLECTIVES] or trial.outcome not in (Outcome.OK, *WAITED_IN_VAIN):
            del tokens[Rung.COLLECTIVES]
        settings = tuple(Setting(name, value) for name, value in sorted(trial.settings.items()))
        return cls(trial, Point(trial.workload, settings), tokens, size_position(fingerprint.sizes))

    @property
    def failed_at(self) -> Limit | None:
        """The limit that this trial has met. What learning has marked as slow names none by itself."""
        return self.row.limit or limit_named(self.row.outcome, "", self.row.device)

    def group(self, scope: Scope) -> str:
        """The context or the device model, as the scope asks for."""
        return self.row.context_id if scope is Scope.SERVER else self.row.device_id


class _Neighbour(NamedTuple):
    """A point that lacks one of its settings where it is indexed."""

    point: Point
    lacking: Setting


class Controls:
    """The controls of any trials among these. An index by points finds them: to compare every trial with every other
    one takes time that grows with the square of their number."""

    def __init__(self, known: Sequence[KnownTrial]) -> None:
        self._known = known
        self._places: dict[Point, list[int]] = defaultdict(list)
        for place, trial in enumerate(known):
            self._places[trial.point].append(place)
        self._lacking_one: dict[Point, list[_Neighbour]] = defaultdict(list)
        for point in self._places:
            for setting in point.settings:
                self._lacking_one[point.without(setting)].append(_Neighbour(point, setting))

    def find_controls(self, scope: Scope, treated: Sequence[KnownTrial]) -> list[KnownTrial]:
        """The controls of these trials, in the order of all trials."""
        own, here = {id(trial) for trial in treated}, {trial.group(scope) for trial in treated}
        places: set[int] = set()
        for point in {trial.point for trial in treated}:
            places.update(place for place in self._places[point] if self._known[place].group(scope) not in here)
            for neighbour in self._differing_in_one(point):
                places.update(self._places[neighbour])
        return [self._known[place] for place in sorted(places) if id(self._known[place]) not in own]

    def _differing_in_one(self, point: Point) -> Iterator[Point]:
        """The points of the same workload that differ in one setting. One of two such points may lack the setting."""
        yield from (neighbour.point for neighbour in self._lacking_one.get(point, ()))
        for setting in point.settings:
            rest = point.without(setting)
            if rest in self._places:
                yield rest
            for neighbour in self._lacking_one.get(rest, ()):
                if neighbour.lacking.name == setting.name and neighbour.lacking.value != setting.value:
                    yield neighbour.point
