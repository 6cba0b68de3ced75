"""What the nodes of a group say of a job: evidence weighs by node, not by trial.

One node proves nothing: its agent may be malicious, and may run one cell a hundred times. So a failure counts where the
trials of two nodes agree on it, and what one node alone reports makes a suspect, which is listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pharoah_protocol.vocabulary import Outcome

MIN_NODES = 2
"""Nodes that must agree before anything is said against a job (ADR 21)."""


class Opinion(StrEnum):
    """What the trials of one node say of one outcome."""

    ALWAYS = "always"
    """All of them ended so."""
    NEVER = "never"
    """None of them ended so."""
    MIXED = "mixed"


@dataclass(frozen=True)
class NodeOutcomes:
    """How the trials of each node ended."""

    by_node: dict[str, Counter[Outcome]]

    @classmethod
    def from_outcomes(cls, outcomes: Iterable[NodeOutcome]) -> NodeOutcomes:
        """Count outcomes by node."""
        by_node: dict[str, Counter[Outcome]] = defaultdict(Counter)
        for one in outcomes:
            by_node[one.node][one.outcome] += 1
        return cls(dict(by_node))

    def opinion(self, node: str, outcome: Outcome) -> Opinion:
        """What this node, which has trials, says of an outcome."""
        counts = self.by_node[node]
        if not counts[outcome]:
            return Opinion.NEVER
        return Opinion.ALWAYS if counts[outcome] == counts.total() else Opinion.MIXED

    def with_outcome(self, outcome: Outcome) -> set[str]:
        """Nodes on which at least one trial ended so."""
        return {node for node, counts in self.by_node.items() if counts[outcome]}

    @property
    def working(self) -> set[str]:
        """Nodes on which every trial ran to its end."""
        return {node for node, counts in self.by_node.items() if counts[Outcome.OK] == counts.total()}

    @property
    def failing(self) -> set[str]:
        """Nodes on which at least one trial failed."""
        return self.by_node.keys() - self.working

    def find_agreed_failure(self) -> Outcome | None:
        """The outcome on which most nodes agree, if two do; of several the one with most trials."""
        found = {
            outcome: (len(nodes), self.count(outcome))
            for outcome in Outcome
            if outcome is not Outcome.OK and len(nodes := self.with_outcome(outcome)) >= MIN_NODES
        }
        return max(found, key=lambda outcome: found[outcome]) if found else None

    def count(self, outcome: Outcome) -> int:
        """Trials that ended so, on all nodes."""
        return sum(counts[outcome] for counts in self.by_node.values())

    @property
    def trials(self) -> int:
        """All trials."""
        return sum(counts.total() for counts in self.by_node.values())

    def without(self, nodes: set[str]) -> NodeOutcomes:
        """The outcomes of the other nodes."""
        return NodeOutcomes({node: counts for node, counts in self.by_node.items() if node not in nodes})


@dataclass(frozen=True)
class NodeOutcome:
    """How one trial on one node ended."""

    node: str
    outcome: Outcome
