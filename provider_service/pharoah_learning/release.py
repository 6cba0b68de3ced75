"""What learners produce: rows, models and baselines, which together are a release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from pharoah_learning.context_rule import ALL_FACTS, ContextRule, KnownContext, identity
from pharoah_learning.known_versions import SubArchetype, VersionChange
from pharoah_learning.limits import Limit
from pharoah_learning.recipe_item import RecipeItem
from pharoah_protocol.vocabulary import Grade, Outcome, Provenance, RowKind, Rung, Scope, Severity

if TYPE_CHECKING:
    from pharoah_learning.incompatible_pairs import PairFinding

FORMAT = 7
"""The format of a stored release. Format 1 had lists of coefficients, and numbers that nothing read; format 2 had no
suspects; format 3 had no sub-archetypes, no pairs, no rule of contexts and no recipe; format 4 had no rows about
nodes; up to format 5, runs were judged by a survival model, whose scores had the mean of its runs as zero; up to
format 6, rows had no limits, and their evidence need not have varied."""
FIRST_WITH_SUB_ARCHETYPES = 4
FIRST_WITH_NODE_ROWS = 5
_FIRST_FEATURES = ("slowdown", "trend", "growth")
"""What the numbers of a survival model of format 1 stand for."""
_FITTED_SURVIVAL = "cox"
"""The method of a survival model that was fitted."""
FALLBACK_SLOWDOWN = log(1.15)
"""Without a fitted model, steps that take 15 % longer than the run's own baseline are suspicious."""


@dataclass(frozen=True, kw_only=True)
class LearnedRow:
    """One row of an incompatibility table before it is sealed."""

    scope: Scope
    group_id: str
    """Context for scope `server`, device model for `device`."""
    rung: Rung
    tokens: tuple[str, ...]
    severity: Severity
    outcome: Outcome
    failures: int
    runs: int
    base_failures: int
    base_runs: int
    remedy: int
    title: str = ""
    """For people at the provider: workload and settings."""
    plan: str = ""
    """How to watch such jobs (pharoah_protocol.monitoring_plan), hexadecimal; empty for the default plan."""
    kind: RowKind = RowKind.ARCHETYPE
    provenance: Provenance = Provenance.CAMPAIGN
    grade: Grade = Grade.ASSOCIATION
    evidence: str = ""
    """Names the trials or reports that the row rests on (`identity` of their ids), hexadecimal; empty where they have
    no ids."""
    limit: Limit | None = None
    """The limit of nodes that its failures have met: the row speaks only where it is at least as tight."""
    least_size: int = 0
    """It speaks of jobs from this position in their size classes on (`pharoah_archetypes.size_position`)."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LearnedRow:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        return cls(
            **{
                **data,
                "scope": Scope(data["scope"]),
                "rung": Rung(data["rung"]),
                "tokens": tuple(data["tokens"]),
                "severity": Severity(data["severity"]),
                "outcome": Outcome(data["outcome"]),
                "kind": RowKind(data.get("kind", RowKind.ARCHETYPE)),
                "provenance": Provenance(data.get("provenance", Provenance.CAMPAIGN)),
                "grade": Grade(data.get("grade", Grade.ASSOCIATION)),
                "limit": Limit(data["limit"]) if data.get("limit") else None,
            }
        )

    @property
    def id(self) -> str:
        """Names the row across releases: it depends on what the row is about, and not on what was counted."""
        return identity([self.scope, self.group_id, self.kind, self.rung, *self.tokens])


class NodeKind(NamedTuple):
    """Nodes that state the same facts."""

    device_id: str
    facts: tuple[str, ...]
    """As `name=value`."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A failure that one node alone reports: it makes no row, and another node can confirm or refute it."""

    node: str
    context_id: str
    device_id: str
    outcome: Outcome
    failures: int
    runs: int
    """Trials of this job on the node."""
    title: str
    """Workload and settings."""
    refuting: int
    """Nodes of the same server configuration on which the job worked each time."""
    content: str = ""
    """Workload and settings of a cell that failed, as JSON; empty in releases before suspects could be confirmed."""

    @property
    def suspect_id(self) -> str:
        """The same in every release that has this suspect."""
        return identity([self.node, self.context_id, self.outcome, self.content or self.title])[:8]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Suspect:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        return cls(**{**data, "outcome": Outcome(data["outcome"])})


@dataclass(frozen=True)
class DegradationModel:
    """What degraded runs look like, ready to score: log odds that a run is degraded, up to a constant."""

    coefficients: dict[str, float]
    """By the name of the feature (`pharoah_learning.signals`)."""
    threshold: float
    """Score above which a window is suspicious."""
    runs: int
    """Runs that it was learned from."""
    degraded: int
    """How many of them were degraded on purpose."""
    fitted: bool = True
    """Whether the coefficients were learned; otherwise the slowdown alone counts."""

    @classmethod
    def threshold_only(cls, runs: int = 0, degraded: int = 0) -> DegradationModel:
        """A threshold on the slowdown, for a provider that has seen too few degraded runs to fit anything."""
        return cls({"slowdown": 1.0}, FALLBACK_SLOWDOWN, runs, degraded, fitted=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DegradationModel:
        """Read what `asdict` gave."""
        return cls(data["coefficients"], data["threshold"], data["runs"], data["degraded"], data["fitted"])

    @classmethod
    def from_survival_model(cls, data: dict[str, Any]) -> DegradationModel:
        """Read the model of a release up to format 5. Scores and threshold are both larger by one constant; it counts
        the means of features whose signal is gone as well."""
        coefficients, means = (
            dict(zip(_FIRST_FEATURES, data[name], strict=True)) if isinstance(data[name], list | tuple) else data[name]
            for name in ("coefficients", "means")
        )
        threshold = data["threshold"] + sum(value * means[name] for name, value in coefficients.items())
        return cls(coefficients, threshold, data["runs"], data["events"], data["method"] == _FITTED_SURVIVAL)

    def score(self, features: Mapping[str, float]) -> float:
        """Larger is worse. A feature that is absent speaks for nothing; one without a coefficient does not count."""
        return sum(value * features.get(name, 0.0) for name, value in self.coefficients.items())


@dataclass(frozen=True)
class BenchmarkBaseline:
    """What a healthy node shows on one micro-benchmark."""

    node: str
    benchmark: str
    beside_job: bool
    seconds: float
    """Typical seconds per repeat: the median over the rounds."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BenchmarkBaseline:
        """Read what `asdict` gave, also in format 1."""
        return cls(data["node"], data["benchmark"], data["beside_job"], data["seconds"])


@dataclass(frozen=True)
class Release:
    """What one run of the learners gave. It is stored as JSON."""

    release: int
    rows: tuple[LearnedRow, ...] = ()
    degradation: DegradationModel | None = None
    baselines: tuple[BenchmarkBaseline, ...] = ()
    notes: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    pairs: tuple[PairFinding, ...] = ()
    """What revealed production runs show of archetypes and facts of nodes; it makes no row."""
    sub_archetypes: tuple[SubArchetype, ...] = ()
    version_changes: tuple[VersionChange, ...] = ()
    recipe: tuple[RecipeItem, ...] = ()
    """Which signals to collect in production; it is public."""
    format: int = FORMAT
    context_rule: ContextRule = ALL_FACTS
    """Which facts of a node make its context."""
    contexts: tuple[KnownContext, ...] = ()
    """The contexts of which there are trials with facts."""
    returned: Mapping[str, float] = field(default_factory=dict)
    """When an operator had returned a node to service, unix seconds: rows about it count what came after."""
    fleet: tuple[NodeKind, ...] = ()
    """The nodes that the provider knew, for rows about nodes that have run nothing (`limit_rows`)."""

    @classmethod
    def from_dict(cls, data: Any) -> Release:
        """Read what `asdict` gave, also as it comes back from JSON. Raises ValueError for a format that is newer. The
        format stays what it was: it says what the learners of that time made."""
        from pharoah_learning.incompatible_pairs import PairFinding  # here: it brings numpy

        if not isinstance(data, dict):
            raise ValueError("expected the fields of a release")
        if (stored := data.get("format", 1)) > FORMAT:
            raise ValueError(f"format {stored}: this release of Pharoah reads formats up to {FORMAT}")
        rows = tuple(LearnedRow.from_dict(row) for row in data["rows"])
        baselines = tuple(BenchmarkBaseline.from_dict(baseline) for baseline in data["baselines"])
        suspects = tuple(Suspect.from_dict(suspect) for suspect in data.get("suspects", ()))
        return cls(
            release=data["release"],
            rows=rows,
            degradation=_degradation(data),
            baselines=baselines,
            notes=tuple(data["notes"]),
            suspects=suspects,
            pairs=tuple(PairFinding.from_dict(pair) for pair in data.get("pairs", ())),
            sub_archetypes=tuple(SubArchetype.from_dict(one) for one in data.get("sub_archetypes", ())),
            version_changes=tuple(VersionChange.from_dict(one) for one in data.get("version_changes", ())),
            recipe=tuple(RecipeItem.from_dict(item) for item in data.get("recipe", ())),
            format=stored,
            context_rule=ContextRule.from_dict(data.get("context_rule", {"ignored": ()})),
            contexts=tuple(KnownContext.from_dict(context) for context in data.get("contexts", ())),
            returned=dict(data.get("returned", {})),
            fleet=tuple(NodeKind(device, tuple(facts)) for device, facts in data.get("fleet", ())),
        )


def _degradation(data: dict[str, Any]) -> DegradationModel | None:
    """The model by which runs are judged; up to format 5 it has another name."""
    if "degradation" in data:
        return None if data["degradation"] is None else DegradationModel.from_dict(data["degradation"])
    return None if data["survival"] is None else DegradationModel.from_survival_model(data["survival"])


class ClassKey(NamedTuple):
    """What a class of rows is about."""

    scope: Scope
    group_id: str
    """Id of the context or of the device model, as the scope asks for."""


@dataclass(frozen=True)
class SealInputs:
    """Everything an epoch is made from, besides the seed and the provider's key."""

    epoch: int
    release: Release
    groups: tuple[ClassKey, ...]
    """The classes that get a table; a class without a row gets one, too."""
    began: int
    """Unix seconds."""

    def groups_json(self) -> str:
        return json.dumps(self.groups)

    @staticmethod
    def groups_of(text: str) -> tuple[ClassKey, ...]:
        return tuple(ClassKey(scope=Scope(scope), group_id=str(group)) for scope, group in json.loads(text))
