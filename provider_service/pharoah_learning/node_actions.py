"""What to do with a node because of its class: keep it, avoid it for certain work, or take it out of service.

A class must be certain before it has consequences. A breaker keeps a wrong class, or a fault that all nodes share, from
emptying a fleet: only so many nodes are drained at a time, and only a share of the nodes of one context. What exceeds
it is held back, and shown. Decisions are reversible: a drained node goes on with campaigns, and returns when its newer
cells speak for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from pharoah_learning.node_class import CERTAIN
from pharoah_learning.node_classes import ClassedNode
from pharoah_protocol.vocabulary import NodeAction, NodeClass

RETURN = 0.5
"""A drained node returns when the class that it was drained for has become less probable than this."""


@dataclass(frozen=True)
class Breaker:
    """How many nodes may be drained at a time. Raises ValueError that names the parameter."""

    most_nodes: int = 8
    """The bound for all nodes together. A choice: the nodes of one switch of a small cluster."""
    most_share: float = 0.1
    """The share of the nodes of one context; a context of several nodes may always have one."""

    def __post_init__(self) -> None:
        if self.most_nodes < 0:
            raise ValueError(f"most_nodes: {self.most_nodes}, expected 0 or more")
        if not 0 <= self.most_share <= 1:
            raise ValueError(f"most_share: {self.most_share}, expected 0 to 1")

    def count_allowed(self, nodes: int) -> int:
        """How many of the nodes of one context may be drained. A context with one node may lose none."""
        share = int(Fraction(str(self.most_share)) * nodes)
        return max(1, share) if nodes > 1 and self.most_share else 0


@dataclass(frozen=True, kw_only=True)
class NodeDecision:
    """What to do with one node, and why."""

    node: str
    action: NodeAction = NodeAction.KEEP
    node_class: NodeClass = NodeClass.HEALTHY
    """The most probable class."""
    probability: float = 1.0
    """How probable that class is."""
    sick_probability: float = 0.0
    """How probable it is that the node is gray or persistent: its score."""
    failures: int = 0
    reruns: int = 0
    wrong_for: tuple[str, ...] = ()
    """The work that a gray node is to be avoided for, as names of contents of cells."""
    held_back: bool = False
    """Whether the node would be drained if the breaker allowed it."""


def decide(
    classed: Iterable[ClassedNode],
    context_of: Mapping[str, str],
    drained: Collection[str] = (),
    breaker: Breaker | None = None,
    gone: Collection[str] = (),
) -> list[NodeDecision]:
    """One decision for each node that has a class and is known, in the order of the names.

    `context_of` gives the context of each node that is known, whether it has a class or not. `drained` are the nodes
    that are drained now: they come first, so that one node does not take the place of another one. `gone` are nodes
    that were not seen for long: they take no place of a node that is there.
    """
    breaker = breaker or Breaker()
    wanted = [_decide_wanted(one, one.node in drained) for one in classed if one.node in context_of]
    sizes = Counter(context for node, context in context_of.items() if node not in gone)
    used, total = Counter[str](), 0
    decided = []
    for one in sorted(wanted, key=lambda one: (one.node not in drained, -one.sick_probability, one.node)):
        context = context_of[one.node]
        if one.action is NodeAction.DRAIN and one.node not in gone:
            fits = total < breaker.most_nodes and used[context] < breaker.count_allowed(sizes[context])
            total, used[context] = total + fits, used[context] + fits
            if not fits:
                one = replace(one, action=NodeAction.KEEP, held_back=True)
        decided.append(one)
    return sorted(decided, key=lambda one: one.node)


def fleet_health_ratio(decisions: Iterable[NodeDecision], nodes: int) -> float:
    """The expected share of nodes that are neither gray nor persistent; 1 for a fleet without nodes."""
    return 1.0 - sum(one.sick_probability for one in decisions) / nodes if nodes else 1.0


def _decide_wanted(one: ClassedNode, is_drained: bool) -> NodeDecision:
    estimate = one.estimate
    least = RETURN if is_drained else CERTAIN
    action = NodeAction.KEEP
    if estimate.posterior[NodeClass.PERSISTENT] >= least:
        action = NodeAction.DRAIN
    elif estimate.posterior[NodeClass.GRAY] >= CERTAIN and one.wrong_for:
        action = NodeAction.AVOID
    return NodeDecision(
        node=one.node,
        action=action,
        node_class=estimate.node_class,
        probability=estimate.posterior[estimate.node_class],
        sick_probability=estimate.posterior[NodeClass.PERSISTENT] + estimate.posterior[NodeClass.GRAY],
        failures=one.failures,
        reruns=estimate.reruns,
        wrong_for=one.wrong_for,
    )
