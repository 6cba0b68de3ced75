"""What a release says about versions of software: sub-archetypes, and changes from one version to the next."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1
from typing import Any, NamedTuple

STEP_TIME, ACTIVATIONS, STRUCTURE = "step_time", "activations", "structure"
"""Quantities of a behaviour: the logarithm of the step time, that of the bytes that the forward pass writes, and how
far the skeleton is from the archetype (0 is the archetype itself, 1 has nothing in common)."""
FAILED = "failed_"
"""The quantity `failed_OUTCOME` is the share of cells that end so."""

MIN_SHOWN = 0.01
"""Smaller values of a centre are not written out: 1 %."""
STABLE_INDEX = 0.85
"""The least agreement of clusters with those of resampled versions (`models.clusters.stability`) with which rows are
expanded. Simulated versions (`evaluation.learning.simulated_versions`) have 0.1 to 0.5 with the separation 0.3, where
clusters overlap, and more than 0.85 with 0.8."""
MIN_BLOCKS, MIN_NODES = 5, 2
"""Rows are expanded for a version with blocks and nodes of this number: what a blocking row needs (ADR 21)."""


class Estimate(NamedTuple):
    """A measured quantity of one version, relative to the mean of all versions of its archetype."""

    value: float
    error: float
    """Standard error, with the tolerance below which differences do not matter."""


@dataclass(frozen=True)
class VersionBehaviour:
    """How one version behaves."""

    version: str
    blocks: int
    """Blocks of campaigns in which it ran beside other versions."""
    nodes: int
    behaviour: dict[str, Estimate]
    """By quantity. One that was not measured is not there."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VersionBehaviour:
        """Read what `asdict` gave, also as it comes back from JSON."""
        behaviour = {name: Estimate(*estimate) for name, estimate in data["behaviour"].items()}
        return cls(data["version"], data["blocks"], data["nodes"], behaviour)


@dataclass(frozen=True, kw_only=True)
class SubArchetype:
    """An archetype together with the versions of one library that make it behave in the same way."""

    archetype: str
    library: str
    versions: tuple[VersionBehaviour, ...]
    """From old to new."""
    stability: float
    """Agreement of all clusters of the archetype and library with those of resampled versions (`models.clusters`)."""
    title: str
    """The workloads that have shown it, for people."""
    together: tuple[str, ...] = ()
    """Libraries whose version is another one whenever that of this library is: the cause may be theirs."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SubArchetype:
        """Read what `asdict` gave, also as it comes back from JSON."""
        versions = tuple(VersionBehaviour.from_dict(version) for version in data["versions"])
        return cls(**{**data, "versions": versions, "together": tuple(data["together"])})

    @property
    def is_stable(self) -> bool:
        """Whether resampled versions give the same clusters."""
        return self.stability >= STABLE_INDEX

    @property
    def expanded_versions(self) -> frozenset[str]:
        """The versions that a row about one of them is sealed for; none where the cluster is not stable."""
        enough = {one.version for one in self.versions if one.blocks >= MIN_BLOCKS and one.nodes >= MIN_NODES}
        return frozenset(enough) if self.is_stable else frozenset()

    @property
    def centre(self) -> dict[str, Estimate]:
        """The behaviour of the sub-archetype: means of its versions, weighted by how well they were measured."""
        found = {}
        for name in sorted({name for one in self.versions for name in one.behaviour}):
            seen = [one.behaviour[name] for one in self.versions if name in one.behaviour]
            weight = sum(one.error**-2 for one in seen)
            found[name] = Estimate(sum(one.value * one.error**-2 for one in seen) / weight, weight**-0.5)
        return found

    @property
    def range(self) -> str:
        """The versions for people: `4.40.0 to 4.46.3 (9)`, although versions between them may behave otherwise."""
        first, last, count = self.versions[0].version, self.versions[-1].version, len(self.versions)
        return first if count == 1 else f"{first} to {last} ({count})"

    @property
    def in_words(self) -> str:
        """What distinguishes it from the mean of all versions of its archetype, for people."""
        centre = self.centre
        differing = [name for name, one in centre.items() if abs(one.value) > max(2 * one.error, MIN_SHOWN)]
        return ", ".join(in_words(name, centre[name].value) for name in differing) or "as the mean of all versions"


@dataclass(frozen=True)
class Effect:
    """What changes from one version to the next: the difference of a quantity, with its interval at 95 %."""

    quantity: str
    value: float
    low: float
    high: float

    @property
    def numbers(self) -> str:
        """The difference with its interval, for people: `+12 % [+10, +14]`."""
        unit = "" if self.quantity == STRUCTURE else " %"
        return f"{_number(self.quantity, self.value)}{unit} [{', '.join(map(self._number, (self.low, self.high)))}]"

    @property
    def in_words(self) -> str:
        """The same with the name of the quantity."""
        return f"{name_of(self.quantity)} {self.numbers}"

    def _number(self, value: float) -> str:
        return _number(self.quantity, value)


@dataclass(frozen=True, kw_only=True)
class VersionChange:
    """What one step from a version to the next one that was tried changes for an archetype."""

    archetype: str
    library: str
    before: str
    after: str
    effects: tuple[Effect, ...]
    """What changes by more than noise and tolerance; empty where nothing meaningful does."""
    same_code: bool | None
    """Whether the functions of the library that ran are the same in both; None where that was not recorded."""
    title: str
    together: tuple[str, ...] = ()
    """As in `SubArchetype`."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VersionChange:
        """Read what `asdict` gave, also as it comes back from JSON."""
        effects = tuple(Effect(**effect) for effect in data["effects"])
        return cls(**{**data, "effects": effects, "together": tuple(data["together"])})


def in_words(quantity: str, value: float) -> str:
    """A difference of a quantity for people: `step time +12 %`; of outcomes it is that of the share of cells."""
    return f"{name_of(quantity)} {_number(quantity, value)}{'' if quantity == STRUCTURE else ' %'}"


def name_of(quantity: str) -> str:
    """The name of a quantity for people: `step time`, `cells with error`."""
    if quantity.startswith(FAILED):
        return f"cells with {quantity.removeprefix(FAILED)}"
    return quantity.replace("_", " ")


def _number(quantity: str, value: float) -> str:
    if quantity == STRUCTURE:
        return f"{value:+.2f}"
    return f"{100 * (value if quantity.startswith(FAILED) else expm1(value)):+.0f}"
