"""What earlier checks of idle nodes say about how often resources of nodes have faults.

The rate of a node is drawn towards that of the fleet by as much as little is known of it (Gamma and Poisson
distributions, empirical Bayes). All sums are kept up to date with each check, so that a choice costs no more in a large
fleet, or after months of checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pharoah_protocol.vocabulary import Resource

DAY_SECONDS = 86_400.0
PRIOR_FAULTS = 0.5
"""Faults that stand for what is assumed before anything is known (Jeffreys' prior of a rate)."""
PRIOR_DAYS = 500.0
"""Days of nodes in which they are assumed to have occurred: one fault of a resource in a thousand days of a node."""
NODE_FAULTS = 0.2
"""How many faults of the fleet's rate a node counts for before it has any of its own: a small number lets nodes differ
much, as published fleets show that few nodes have most of the faults. Assumed."""


class PastChecks(NamedTuple):
    """All checks of one node by one micro-benchmark."""

    node: str
    benchmark: str
    first_at: float
    """Unix seconds."""
    newest_at: float
    checks: int
    faults: int
    """How often something was found that the check before had not found: one fault is found as long as it lasts."""
    found: bool
    """Whether the newest check that was decided has found something."""

    def after(self, at: float, found: bool | None) -> PastChecks:
        """These and one more check, at a time in unix seconds; None for `found` is one that was not decided."""
        return self._replace(
            newest_at=max(self.newest_at, at),
            checks=self.checks + 1,
            faults=self.faults + (found is True and not self.found),
            found=self.found if found is None else found,
        )


class CheckHistory:
    """All checks of a fleet. What was deleted from the store since counts until it is made anew."""

    def __init__(self, resource_of: Mapping[str, Resource], past: Iterable[PastChecks] = ()) -> None:
        """`resource_of`: that of each micro-benchmark; checks by others are left out."""
        self._resource_of = resource_of
        self._of: dict[str, dict[str, PastChecks]] = defaultdict(dict)
        """Node to its checks by each micro-benchmark."""
        self._faults: dict[Resource, int] = defaultdict(int)
        self._days: dict[Resource, float] = defaultdict(float)
        """How long that resource was under watch in all nodes together."""
        for one in past:
            self._put(one)

    def add(self, node: str, benchmark: str, at: float, found: bool | None) -> None:
        """One more check, at a time in unix seconds; None for `found` is one that was not decided."""
        before = self._of[node].get(benchmark) or PastChecks(node, benchmark, at, at, 0, 0, found=False)
        self._put(before.after(at, found))

    def newest_at(self, node: str, benchmark: str) -> float | None:
        """When a node was checked last in this way, unix seconds; None for never."""
        past = self._of[node].get(benchmark)
        return past.newest_at if past else None

    def last_checked(self) -> dict[str, float]:
        """Node to when it was checked last in any way, unix seconds."""
        return {node: max(one.newest_at for one in own.values()) for node, own in self._of.items() if own}

    def checks(self, node: str) -> dict[str, int]:
        """How often a node was checked by each micro-benchmark."""
        return {benchmark: one.checks for benchmark, one in self._of[node].items()}

    def rate(self, node: str, resource: Resource) -> float:
        """Faults of a resource of a node in a day."""
        fleet = (PRIOR_FAULTS + self._faults[resource]) / (PRIOR_DAYS + self._days[resource])
        own = self._own(node, resource)
        return (NODE_FAULTS + sum(one.faults for one in own)) / (NODE_FAULTS / fleet + _days(own))

    def _put(self, now: PastChecks) -> None:
        if (resource := self._resource_of.get(now.benchmark)) is None:
            return
        before = self._own(now.node, resource)
        self._of[now.node][now.benchmark] = now
        after = self._own(now.node, resource)
        self._faults[resource] += sum(one.faults for one in after) - sum(one.faults for one in before)
        self._days[resource] += _days(after) - _days(before)

    def _own(self, node: str, resource: Resource) -> list[PastChecks]:
        return [one for one in self._of[node].values() if self._resource_of[one.benchmark] is resource]


def _days(own: Iterable[PastChecks]) -> float:
    """How long a resource of a node was under watch: from its first check to its newest one."""
    times = [(one.first_at, one.newest_at) for one in own]
    return (max(newest for _, newest in times) - min(first for first, _ in times)) / DAY_SECONDS if times else 0.0
