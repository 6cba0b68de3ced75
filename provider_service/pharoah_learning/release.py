"""What learners produce: rows, models and baselines, which together are a release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def identity(facts: Iterable[str]) -> str:
    """Name of a context or device model: the same facts in any order give the same name."""
    return hashlib.blake2b("\n".join(sorted(facts)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class LearnedRow:
    """One row of an incompatibility table before it is sealed."""

    scope: str
    group_id: str
    """Context for scope `server`, device model for `device`."""
    rung: str
    tokens: tuple[str, ...]
    severity: str
    outcome: str
    failures: int
    runs: int
    base_failures: int
    base_runs: int
    remedy: int
    confidence: int
    title: str = ""
    """For people at the provider: workload and settings."""
    plan: str = ""
    """How to watch such jobs (pharoah_protocol.monitoring_plan), hexadecimal; empty for the plain plan."""
    kind: str = "arch"
    """What the tokens name: `arch`, an archetype; `band`, one band of a sketch of archetypes that are alike."""

    @property
    def id(self) -> str:
        """Names the row across releases: what it is about, not what it says."""
        return identity([self.scope, self.group_id, self.kind, self.rung, *self.tokens])


@dataclass(frozen=True)
class SurvivalModel:
    """Cox model of degradation, ready to score: risk = coefficients . (features - means); larger is sooner failure."""

    coefficients: tuple[float, ...]
    means: tuple[float, ...]
    hazard_per_second: float
    threshold: float
    """Risk above which a window is suspicious."""
    runs: int
    events: int
    method: str = "cox"


@dataclass(frozen=True)
class BenchmarkBaseline:
    """What a healthy node shows on one benchmark: typical seconds per repeat, and how much rounds differ (ratio)."""

    node: str
    benchmark: str
    beside_job: bool
    seconds: float
    spread_ratio: float
    rounds: int


@dataclass(frozen=True)
class Release:
    release: int
    rows: tuple[LearnedRow, ...] = ()
    survival: SurvivalModel | None = None
    baselines: tuple[BenchmarkBaseline, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Release:
        """What `asdict` gave, also as it comes back from JSON."""
        rows = tuple(LearnedRow(**{**row, "tokens": tuple(row["tokens"])}) for row in data["rows"])
        survival = data["survival"]
        if survival is not None:
            lists = {name: tuple(survival[name]) for name in ("coefficients", "means")}
            survival = SurvivalModel(**{**survival, **lists})
        baselines = tuple(BenchmarkBaseline(**baseline) for baseline in data["baselines"])
        return cls(data["release"], rows, survival, baselines, tuple(data["notes"]))


ClassKey = tuple[str, str]
"""Scope (server, device) and which one."""


@dataclass(frozen=True)
class SealInputs:
    """All that an epoch is made from, besides the seed."""

    epoch: int
    release: Release
    groups: tuple[ClassKey, ...]
    """Which classes there are; a class nothing is known of has a table like any other."""
    began: int
    """Unix seconds."""

    def groups_json(self) -> str:
        return json.dumps(self.groups)

    @staticmethod
    def groups_of(text: str) -> tuple[ClassKey, ...]:
        return tuple((str(scope), str(group)) for scope, group in json.loads(text))
