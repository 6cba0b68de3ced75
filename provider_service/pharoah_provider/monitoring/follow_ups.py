"""Checks of a node that a job has suspected: one of each resource, as soon as the node is idle.

A validation runs the micro-benchmarks of a round, which measure how a node computes and copies. A job also becomes slow
because of a disk or a network. So a suspicion that a validation on the idle node did not confirm, or that nothing can
validate, is followed by a check of every resource of the node, without the usual pause (docs/adr/0051).

A tenant gains nothing by many suspicions: a node is followed up once in a pause, in idle time only. A restart of the
provider forgets what was followed up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pharoah_learning.check_selection import Candidate
from pharoah_learning.fleet_comparison import MIN_PAST_RUNS
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import CheckResult
from pharoah_serving.clock import Clock


@dataclass
class _FollowUp:
    """What follows one suspicion of a node. Times are steady seconds."""

    suspicion: str
    """The id of its incident."""
    began_at: float
    left: set[Resource] = field(default_factory=lambda: set(Resource))
    """What is still to be checked."""
    all_healthy: bool = True
    """Whether every check so far has found the node healthy."""
    goes_on_at: float = 0.0


class FollowUps:
    """The newest follow-up of each node."""

    def __init__(self, pause_seconds: float, clock: Clock) -> None:
        """A pause of 0 means that idle nodes are not checked at all."""
        self._pause, self._clock = pause_seconds, clock
        self._of: dict[str, _FollowUp] = {}

    def want(self, node: str, suspicion: str) -> None:
        """Follow a suspicion up, by the id of its incident; nothing happens when the node was followed up a moment
        ago."""
        now, before = self._clock.steady(), self._of.get(node)
        if before is None or (before.suspicion != suspicion and now - before.began_at >= self._pause):
            self._of[node] = _FollowUp(suspicion, now)

    def goes_on(self, node: str) -> bool:
        """Whether something is to be checked now because of a suspicion."""
        return bool(self._of) and bool(self._list_remaining(node))

    def choose_from(
        self, candidates: Sequence[Candidate], measurable: Collection[Resource], past: Mapping[str, int]
    ) -> Sequence[Candidate]:
        """The candidates of one node that follow its suspicion up; none of them when there is nothing to follow.
        `measurable`: what can be measured of the node at all. `past`: how often it was checked, by benchmark. A
        result needs some earlier ones to be compared with, so those that have them come first."""
        if not candidates or not (left := self._list_remaining(candidates[0].node)):
            return ()
        self._of[candidates[0].node].left &= set(measurable)
        first = [one for one in candidates if one.resource in left]
        decides = {one.resource for one in first if past.get(one.benchmark, 0) >= MIN_PAST_RUNS}
        return [one for one in first if one.resource not in decides or past.get(one.benchmark, 0) >= MIN_PAST_RUNS]

    def check(self, node: str, resource: Resource, result: CheckResult) -> None:
        """A resource of a node was checked."""
        if follow_up := self._of.get(node):
            follow_up.all_healthy &= resource not in follow_up.left or result is CheckResult.HEALTHY
            follow_up.left.discard(resource)

    def put_off(self, node: str, seconds: float) -> None:
        """A check of a node could not be made."""
        if follow_up := self._of.get(node):
            follow_up.goes_on_at = self._clock.steady() + seconds

    def was_found_healthy(self, node: str, suspicion: str) -> bool:
        """Whether every resource of a node was checked because of this suspicion, and was found healthy."""
        follow_up = self._of.get(node)
        return (
            follow_up is not None and follow_up.suspicion == suspicion and not follow_up.left and follow_up.all_healthy
        )

    def _list_remaining(self, node: str) -> AbstractSet[Resource]:
        """What is to be checked now. What could not be checked within a pause is given up."""
        now, follow_up = self._clock.steady(), self._of.get(node)
        if follow_up is None or not self._pause or now < follow_up.goes_on_at:
            return frozenset()
        return follow_up.left if now - follow_up.began_at < self._pause else frozenset()
