"""Checks of idle nodes: one micro-benchmark at a time.

Time in which nobody uses a node is used: what most probably finds a fault for each second is run
(`pharoah_learning.check_selection`). A result is compared with those of the healthy nodes of the same context and with
earlier ones of the same node (`pharoah_learning.node_validation`, ADR 43), and its numbers with those of nodes that
have the same facts (`pharoah_learning.deviating_answers`). What looks slower or computes something wrong is measured
once more at once; twice in a row makes a confirmed incident, and healthy twice in a row ends it. So
a node that is slow, or wrong, while it is idle is known before the next tenant comes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from pharoah_benchmarks.facts import device_kinds
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, MicroBenchmark, Need, suitable
from pharoah_learning.check_history import CheckHistory
from pharoah_learning.check_selection import Candidate, Choice, choose
from pharoah_learning.fleet_comparison import PAST_RUNS
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_protocol.vocabulary import Purpose, Resource
from pharoah_provider.domain import CheckResult, IdleCheck, IncidentKind, Node, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.follow_ups import FollowUps
from pharoah_provider.monitoring.idle_judgement import DIFFERS, evidence_of, judge
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.orders import Orders
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady, ProviderError

log = logging.getLogger("pharoah.provider.monitoring")

PAUSE_SECONDS = 3600.0
"""Between two checks of a node, apart from those that follow a suspicion. A check takes some seconds, so at most about
1 % of the time of an idle node."""
LOOK_SECONDS = 10.0
"""How often a node that is in use is looked at, whether it is free."""
RETRY_SECONDS = 300.0
"""After a check that could not be made, because somebody uses the node or its agent does not answer."""
AT_ONCE = 8
"""Checks that go on at once: with them a fleet of 1,250 nodes is checked each hour, at 20 s for a check."""
PARTNERS_CONSIDERED = 16
"""Nodes of which one is to be free to measure together with another one."""
CONSIDERED = 32
"""Nodes that have waited longest and are considered for the next check."""
KEPT_SECONDS = 86_400.0
"""An incident of a node that could not be measured for a day ends: the node, its partners or a device may be gone for
good. A node that is still sick when it is back is found again."""


class IdleChecks:
    """Chooses, orders and judges checks. Belongs to the event loop; its tasks belong to `background`."""

    def __init__(
        self,
        store: Storage,
        fleet: Fleet,
        orders: Orders,
        book: IncidentBook,
        background: OwnedTasks,
        in_use: Callable[[str], bool],
        clock: Clock,
        pause_seconds: float = PAUSE_SECONDS,
        chance: random.Random | None = None,
        expected: Callable[[str], Mapping[Resource, float]] = lambda _: {},
        *,
        is_suspected: Callable[[str], bool],
        follow_ups: FollowUps,
    ) -> None:
        """`in_use(node)`: whether a run goes on there, or a validation does or will. A pause of 0 switches checks off.
        `expected(node)`: faults of its resources that are expected in a day (`node_forecasts`). `is_suspected(node)`:
        whether a run has an open suspicion of it, or it is known to be slow."""
        self._store, self._fleet, self._orders, self._book = store, fleet, orders, book
        self._background, self._in_use, self._clock, self._pause = background, in_use, clock, pause_seconds
        self._chance, self._expected = chance or random.Random(), expected
        self._is_suspected, self._follow_ups = is_suspected, follow_ups
        self._past = CheckHistory(_resources())
        self._due_at: dict[str, float] = {}
        """Node to when it may be checked next, seconds of the steady clock."""
        self._look_at: dict[str, float] = {}
        """Node that was in use to when it is looked at again, seconds of the steady clock."""
        self._going: dict[str, asyncio.Task[None]] = {}
        self._open: dict[str, Transition] = {}
        """The incidents that go on, by node."""
        self._unmeasurable_since: dict[str, float] = {}
        """Node with an incident to when it could not be measured first, seconds of the steady clock."""

    async def restore(self, changes: Iterable[Transition]) -> None:
        """After a restart: go on with the open incidents, and with the pauses."""
        self._open = {change.subject.name: change for change in changes}
        wall, steady = self._clock.wall(), self._clock.steady()
        self._past = CheckHistory(_resources(), await self._store.idle_checks.past())
        self._due_at = {
            node: steady + self._pause - max(0.0, wall - at) for node, at in self._past.last_checked().items()
        }

    async def look(self) -> None:
        """Start the next check, if one is due; once a second. Raises StoreError."""
        self._going = {node: task for node, task in self._going.items() if not task.done()}
        await self._end_what_is_of_other_facts()
        await self._end_what_cannot_be_measured()
        if not self._pause or len(self._going) >= AT_ONCE or not (nodes := self._waiting()):
            return
        if (choice := self._choose(nodes)) is not None and choice.candidate.node not in self._going:
            node = choice.candidate.node
            self._due_at[node] = self._clock.steady() + self._pause
            self._going[node] = self._background.start(self._check(choice))

    async def _end_what_is_of_other_facts(self) -> None:
        """An update may make a whole fleet slower for good: what was found before it says nothing about a node now."""
        for node, incident in list(self._open.items()):
            if self._fleet.facts_changed_at(node) > incident.changed_at:
                await self._book.put(incident.change(CLEARED, self._clock.wall(), "the facts of the node have changed"))
                self._open.pop(node, None)

    async def _end_what_cannot_be_measured(self) -> None:
        now = self._clock.steady()
        self._unmeasurable_since = {
            node: self._unmeasurable_since.get(node, now) for node in self._open if not self._can_be_measured(node)
        }
        for node, since in self._unmeasurable_since.items():
            if now - since >= KEPT_SECONDS:
                incident = self._open[node]
                await self._book.put(incident.change(CLEARED, self._clock.wall(), "it was not measurable for a day"))
                self._open.pop(node, None)

    def _can_be_measured(self, name: str) -> bool:
        """Whether what has raised the incident of a node can be run there again, if not now, then later."""
        node = self._fleet.node(name)
        if node is None or not self._pause or not self._fleet.is_connected(name):
            return False
        wanted = [one for one in _benchmarks(node) if self._is_wanted(name, one.name, one.resource)]
        return any(one.need is None or self._has_partners(node) for one in wanted)

    def tasks(self) -> list[asyncio.Task[None]]:
        """All checks that go on."""
        return [task for task in self._going.values() if not task.done()]

    def _waiting(self) -> list[Node]:
        """The nodes that have waited longest, of those that may be checked now."""
        now = self._clock.steady()
        nodes = self._fleet.list_connected()
        for node in nodes:  # not all at once after the start of the provider
            self._due_at.setdefault(node.node, now + self._chance.uniform(0, self._pause))
        followed = {node.node for node in nodes if self._follow_ups.goes_on(node.node)}
        due = list[Node]()
        for node in nodes:
            wanted = self._due_at[node.node] <= now or node.node in followed
            if wanted and self._look_at.get(node.node, 0.0) <= now:
                if self._is_free(node.node):
                    due.append(node)
                else:  # not asked each second: most nodes are in use
                    self._look_at[node.node] = now + LOOK_SECONDS
        return sorted(due, key=lambda one: (one.node not in followed, self._due_at[one.node]))[:CONSIDERED]

    def _is_free(self, node: str) -> bool:
        return node not in self._going and not self._in_use(node) and self._orders.may_use(node, None)

    def _choose(self, nodes: Sequence[Node]) -> Choice | None:
        candidates, following = list[Candidate](), list[Candidate]()
        for node in nodes:
            own = self._candidates(node)
            if not own:  # it makes place for others
                self._due_at[node.node] = max(self._due_at[node.node], self._clock.steady() + RETRY_SECONDS)
            candidates += own if self._due_at[node.node] <= self._clock.steady() else ()
            following += self._follow_ups.choose_from(own, self._measurable(node), self._past.checks(node.node))
        return choose(following or candidates, self._past, self._clock.wall(), self._chance, self._expected)

    def _candidates(self, node: Node) -> list[Candidate]:
        """What could be run on a node now."""
        has_partner = self._free_partner(node) is not None
        return [
            Candidate(node.node, one.name, one.resource, one.limit_seconds)
            for one in _benchmarks(node)
            if self._is_wanted(node.node, one.name, one.resource) and (one.need is None or has_partner)
        ]

    def _measurable(self, node: Node) -> set[Resource]:
        """What can be measured of a node, now or once a partner is free."""
        has_partners = self._has_partners(node)
        return {one.resource for one in _benchmarks(node) if one.need is None or has_partners}

    def _is_wanted(self, node: str, benchmark: str, resource: Resource) -> bool:
        """A node with an open incident is measured by what has raised it, until it is over."""
        known = self._open.get(node)
        return known is None or (known.resource is resource and known.evidence.startswith(f"{benchmark}:"))

    def _partners(self, node: Node) -> Iterator[Node]:
        """The nodes with which a node can measure its network, in random order."""
        connected = self._fleet.list_connected()
        for other in self._chance.sample(connected, len(connected)):
            if self._is_partner(node, other):
                yield other

    def _has_partners(self, node: Node) -> bool:
        return any(self._is_partner(node, other) for other in self._fleet.list_connected())

    def _is_partner(self, node: Node, other: Node) -> bool:
        """Whether two nodes can measure their network: they are on different hosts, in the same context, and within
        reach of each other."""
        reached = node.peer_address or other.peer_address
        return bool(reached) and not other.shares_host(node) and self._same_context(other, node)

    def _partner(self, node: str, benchmark: str, but: str = "") -> Node | None:
        """A free node for a micro-benchmark that needs one, drawn at random; None where it needs none. Raises NotReady
        where there is none. Its own checks wait meanwhile."""
        if MICRO_BENCHMARKS[benchmark].need is not Need.PARTNER or (known := self._fleet.node(node)) is None:
            return None
        if (chosen := self._free_partner(known, but)) is None:
            raise NotReady(f"no other node is free to measure {benchmark} with it")
        if node in self._going:
            self._going[chosen.node] = self._going[node]
        return chosen

    def _free_partner(self, node: Node, but: str = "") -> Node | None:
        """One of the nodes with which a node can measure now, of some that are drawn at random; None without one."""
        partners = (one for one in self._partners(node) if one.node != but)
        drawn = islice(partners, PARTNERS_CONSIDERED)
        return next((one for one in drawn if self._is_free(one.node) and not self._is_suspected(one.node)), None)

    async def _check(self, choice: Choice) -> None:
        node, benchmark = choice.candidate.node, choice.candidate.benchmark
        try:
            partner = self._partner(node, benchmark)
            first = await self._measure(node, benchmark, choice.propensity, partner)
            self._follow_ups.check(node, choice.candidate.resource, first.result)
            if first.found is (node in self._open):
                return  # it is as it was
            if first.result is CheckResult.UNDECIDED:
                return
            other = self._partner(node, benchmark, but=partner.node) if partner else None
            again = await self._measure(node, benchmark, 1.0, other)
            if again.result is first.result:
                await complete_despite_cancellation(self._note_change(again))
            elif partner and first.found:
                self._due_at[partner.node] = self._clock.steady()  # it may have been the other one
        except NotReady as error:
            log.info("no check of %s: %s", node, error)
            retry = min(RETRY_SECONDS, self._pause)
            self._due_at[node] = self._clock.steady() + retry
            self._follow_ups.put_off(node, retry)
        except ProviderError as error:
            log.warning("the check of %s failed: %s", node, error)
            self._follow_ups.put_off(node, min(RETRY_SECONDS, self._pause))

    async def _measure(self, node: str, benchmark: str, propensity: float, partner: Node | None) -> IdleCheck:
        """Run a micro-benchmark, with a partner where it needs one; store and judge its result. Raises NotReady."""
        known = self._fleet.node(node)
        if partner is not None and known is not None:
            result = await self._orders.check_together(known, partner, MICRO_BENCHMARKS[benchmark])
        else:
            result = await self._orders.check(node, benchmark)
        nodes = {one.node for one in self._fleet.list_connected() if known and self._same_context(one, known)}
        past = await self._store.idle_checks.results(benchmark, sorted(nodes | {node}), 1 + PAST_RUNS)
        same_facts = {one.node for one in self._fleet.list_connected() if known and one.facts_id == known.facts_id}
        incident = self._open.get(node)
        differed = incident is not None and DIFFERS in incident.evidence
        check = await asyncio.to_thread(
            judge, result, past, same_facts, propensity, self._clock.wall(), differed=differed
        )
        # What was slow is no reference: with it a node that stays slow would soon look as it always did. And of a node
        # that a job suspects, or that was slow, it is not known whether it is slow now.
        was_slow = incident is not None and incident.kind is IncidentKind.BELOW_FLEET
        doubtful = (was_slow or self._is_suspected(node)) and check.result is not CheckResult.HEALTHY
        purpose = Purpose.VALIDATION if check.found or doubtful else Purpose.CHECK
        await self._store.evidence.append_probes([result], purpose)
        await self._store.idle_checks.put(check)
        undecided = check.result is CheckResult.UNDECIDED
        self._past.add(node, benchmark, check.checked_at, None if undecided else check.found)
        return check

    def _same_context(self, one: Node, other: Node) -> bool:
        return self._fleet.contexts.find_name(one) == self._fleet.contexts.find_name(other)

    async def _note_change(self, check: IdleCheck) -> None:
        """Twice in a row a check has shown something else than what is known of the node."""
        now, evidence = self._clock.wall(), evidence_of(check)
        if (known := self._open.get(check.node)) is not None:
            await self._book.put(known.change(CLEARED, now, evidence))
            self._open.pop(check.node, None)
            return
        wrong = check.result is CheckResult.WRONG
        what = "computes something wrong" if wrong else "is slower than healthy nodes"
        incident = Transition(
            incident_id=f"al-{secrets.token_hex(6)}",
            subject=Subject.check(check.node),
            kind=IncidentKind.WRONG_ANSWER if wrong else IncidentKind.BELOW_FLEET,
            state=CONFIRMED,
            raised_by=b"",
            what=f"this node {what} while it is idle",
            evidence=evidence,
            since=now,
            changed_at=now,
            step_ratio=1.0,
            resource=MICRO_BENCHMARKS[check.benchmark].resource,
        )
        await self._book.put(incident)
        self._open[check.node] = incident


def _resources() -> dict[str, Resource]:
    """What each micro-benchmark measures."""
    return {one.name: one.resource for one in MICRO_BENCHMARKS}


def _benchmarks(node: Node) -> list[MicroBenchmark]:
    """The micro-benchmarks that an idle node can run, alone or with a partner."""
    fitting = suitable(device_kinds(node.server_facts), beside_job=False, names=list(MICRO_BENCHMARKS.entries))
    return [one for one in fitting if one.need in (None, Need.PARTNER)]
