"""How much time micro-benchmarks may take for one tenant, and on one node: pure, and rebuilt from stored orders.

A tenant that reports slow steps has nodes measured, whether the steps are slow or not. So the seconds are counted by
its organisation, whatever runs it ends and joins and whatever accounts it uses:

* **Rounds that find nothing**, and rounds that measure levels, come from small allowances. Over any time of ten minutes
  or more they are at most `share` of the time together: 0.625 of 600 s times `share` at once, and then 0.375 of
  `share`.
* **Orders after a round has looked slow** come from an allowance of their own, so that a node that is slow is
  confirmed without a pause: 0.45 of 7,200 s times `share` at once, and then a tenth of `share`. All together are at
  most `share` of the time over two hours or more.
* **A node that is found healthy** is left alone by the same organisation for a pause that doubles each time.
* **A peer** is measured for others no more than an allowance of its own permits.

An organisation that has runs on many nodes has as much for every eight of them, or one slow node of hundreds would
wait for the false suspicions of the others. An order that takes longer than it should, and rounds that go on at once,
overdraw an allowance by as much as it holds at most; it then has to recover first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Found, MeasuredOrder

SHARE = 0.01
"""Share of the time that micro-benchmarks may take for one organisation, on all nodes together."""
SHORTEST_LEVEL_SECONDS, SHORTEST_VALIDATION_SECONDS = 1.4, 2.2
"""Shorter rounds say too little. Beside a job a micro-benchmark works for a tenth of the time, in bursts of 0.1 s, so a
round of both holds one or two bursts of each; what does not fit is left out, repeat by repeat."""
SHORT_SPAN_SECONDS, LONG_SPAN_SECONDS = 600.0, 7200.0
"""The shortest times over which `share` holds: for rounds that find nothing, and for all rounds."""
LEVEL_AT_ONCE, LEVEL_RATE = 0.25, 0.15
VALIDATION_AT_ONCE, VALIDATION_RATE = 0.375, 0.225
"""Parts of `share`: at once, of the short span, and steadily. They add up to 1, which is what bounds the short span."""
SLOW_AT_ONCE, SLOW_RATE = 0.45, 0.1
"""The same of the long span. There, (0.25 + 0.375) / 12 + 0.15 + 0.225 + 0.45 + 0.1 = 0.98."""
NODES_COUNTED_TOGETHER = 8
"""Nodes of an organisation that share one allowance: a machine with eight GPUs is often eight nodes."""
FIRST_PAUSE_AT_SHARE_SECONDS, MAX_PAUSE_AT_SHARE_SECONDS = 0.6, 36.0
"""Times `1 / share`: 60 s after the first round in a row that finds a node healthy, an hour at most."""
FORGOTTEN_SECONDS = 86_400.0
"""After a day without a round nothing is left to count: all allowances are full, and pauses begin anew."""


@dataclass
class _Allowance:
    """Seconds that may be used; they come back with time."""

    most: float
    rate: float
    """Seconds that come back in a second."""
    _left: float = field(init=False)
    _at: float | None = None

    def __post_init__(self) -> None:
        self._left = self.most

    def get_remaining(self, now: float, scale: float = 1.0) -> float:
        """`scale` times the allowance holds now."""
        if self._at is None:
            self._left = self.most * scale
        elif now > self._at:
            self._left = min(self.most * scale, self._left + (now - self._at) * self.rate * scale)
        self._at = now if self._at is None else max(now, self._at)
        return self._left

    def use(self, seconds: float, now: float, scale: float = 1.0) -> None:
        self.get_remaining(now, scale)
        self._left -= seconds

    def limit_overdraft(self, scale: float = 1.0) -> None:
        """What is overdrawn comes back in the time that it takes from empty to full."""
        self._left = max(self._left, -self.most * scale)


@dataclass
class _Healthy:
    """Rounds in a row that found a node healthy."""

    rounds: int
    ended_at: float


class Budgets:
    """The allowances of all organisations and nodes. All times are seconds of the steady clock."""

    def __init__(self, share: float = SHARE, nodes_of: Callable[[str], int] = lambda _: 1) -> None:
        """`share` of the time may be used for one organisation; more than 1 is possible, because nodes are summed.
        `nodes_of(organisation)` is on how many nodes it has runs."""
        self._share, self._nodes_of = share, nodes_of
        self._levels: dict[str, _Allowance] = defaultdict(self._for_levels)
        self._validations: dict[str, _Allowance] = defaultdict(self._for_validations)
        self._slow: dict[str, _Allowance] = defaultdict(self._for_slow)
        """By organisation: levels, validations, and rounds that look slow."""
        self._peers: dict[str, _Allowance] = defaultdict(self._for_slow)
        """By node that was measured as a peer."""
        self._healthy: dict[_OfOrganisation, _Healthy] = {}

    def level_seconds(self, organisation: str, now: float) -> float:
        """Seconds that a round for a level may take now; 0 when that is too short."""
        left = self._levels[organisation].get_remaining(now, self._scale(organisation))
        return left if left >= SHORTEST_LEVEL_SECONDS else 0.0

    def validation_seconds(self, organisation: str, node: str, now: float, *, looks_slow: bool) -> float:
        """Seconds that an order for a validation may take now, at its beginning or once it looks slow; 0 when that is
        too short, and during a pause."""
        scale = self._scale(organisation)
        if not looks_slow and now < self._compute_pause_end(organisation, node):
            return 0.0
        left = (self._slow if looks_slow else self._validations)[organisation].get_remaining(now, scale)
        return left if left >= SHORTEST_VALIDATION_SECONDS else 0.0

    def peer_seconds(self, peer: str, now: float) -> float:
        """Seconds for which a node may be measured as a peer now; 0 when that is too short."""
        left = self._peers[peer].get_remaining(now)
        return left if left >= SHORTEST_VALIDATION_SECONDS else 0.0

    def count(self, order: MeasuredOrder, now: float) -> None:
        """Count an order that ended at `now`."""
        seconds = max(0.0, order.ended_at - order.began_at)
        if order.peer:
            self._peers[order.node].use(seconds, now)
        if order.purpose is Purpose.LEVEL:
            used = self._levels
        else:
            used = self._slow if order.looked_slow else self._validations
        used[order.organisation].use(seconds, now, self._scale(order.organisation))
        self._count_healthy(order, now)

    def restore(self, orders: Iterable[MeasuredOrder], wall: float, steady: float) -> None:
        """Count orders, oldest first, those of a round or, after a restart, those that are stored; `wall` (unix) and
        `steady` are now on both clocks.

        Rounds that go on at once, and stored orders of a large job that has ended, which are counted by the nodes that
        its organisation has now, overdraw its allowances. That must not keep its nodes from being measured for a day.
        """
        for order in orders:
            self.count(order, steady - max(0.0, wall - order.ended_at))
        for allowances in (self._levels, self._validations, self._slow):
            for organisation, allowance in allowances.items():
                allowance.limit_overdraft(self._scale(organisation))
        for peer in self._peers.values():
            peer.limit_overdraft()

    def _count_healthy(self, order: MeasuredOrder, now: float) -> None:
        key = _OfOrganisation(order.organisation, order.suspected)
        if order.found is Found.SLOW:
            self._healthy.pop(key, None)
        elif order.found is Found.HEALTHY:
            before = self._healthy.get(key)
            again = before is not None and now - before.ended_at < FORGOTTEN_SECONDS
            self._healthy[key] = _Healthy(before.rounds + 1 if before and again else 1, now)

    def _compute_pause_end(self, organisation: str, node: str) -> float:
        if (healthy := self._healthy.get(_OfOrganisation(organisation, node))) is None:
            return -inf
        doubled = FIRST_PAUSE_AT_SHARE_SECONDS * 2 ** min(healthy.rounds - 1, 16)
        longest = min(doubled, MAX_PAUSE_AT_SHARE_SECONDS)
        return healthy.ended_at + (longest / self._share if self._share else inf)

    def _scale(self, organisation: str) -> float:
        return max(1.0, self._nodes_of(organisation) / NODES_COUNTED_TOGETHER)

    def _for_levels(self) -> _Allowance:
        return _Allowance(LEVEL_AT_ONCE * SHORT_SPAN_SECONDS * self._share, LEVEL_RATE * self._share)

    def _for_validations(self) -> _Allowance:
        return _Allowance(VALIDATION_AT_ONCE * SHORT_SPAN_SECONDS * self._share, VALIDATION_RATE * self._share)

    def _for_slow(self) -> _Allowance:
        return _Allowance(SLOW_AT_ONCE * LONG_SPAN_SECONDS * self._share, SLOW_RATE * self._share)


@dataclass(frozen=True)
class _OfOrganisation:
    """An organisation and a node."""

    organisation: str
    node: str
