"""Turns: for whom the provider works next. Every caller has a budget of the provider's CPU time, which
follows from its role.

Callers within their budget come first, those who have used the least before those who have used more (start-time fair
queueing: each caller has a virtual clock that its own costs move on). Callers that have used their budget up wait, also
while nobody else does, so that all of them together take a quarter of the time: a light caller never meets an event
loop that is busy all the time. Nobody is refused here; a call waits within its deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from pharoah_protocol.vocabulary import Role
from pharoah_serving.costs import Cost
from pharoah_serving.principals import Principal


@dataclass(frozen=True)
class Budget:
    """What a caller may use before it waits behind others."""

    slots: int
    """Short calls that are worked on at once. A verdict makes two calls at once (GetEpoch and GetOffer); more slots
    would put more steps of one caller between two steps of another."""
    ratio: float
    """CPU seconds per second."""


BUDGETS = {
    Role.TENANT: Budget(slots=2, ratio=0.35),
    Role.AGENT: Budget(slots=2, ratio=0.05),
    Role.OPERATOR: Budget(slots=4, ratio=0.35),
}
"""A tenant that asks for verdicts one after the other uses about 0.2 s a second; a report of one second of eight ranks
takes about 1 ms, so three hundred nodes of one organisation stay within its budget. An agent speaks for one node: 145
rows of telemetry every two seconds take 0.002 s a second, and the longest result of a cell takes 0.3 s once."""
BURST_SECONDS = 1.0
"""CPU seconds that a caller may use at once: about a thousand short calls, which is a job of 1,024 nodes that joins, or
the telemetry that an agent has kept for eight minutes."""
OVER_BUDGET_RATIO = 0.25
"""The share of the time in which the provider works for callers that are over their budget, all of them together."""
CALL_SECONDS = 0.0007
"""Seconds that gRPC itself takes for a call, which nobody can measure from inside the call
(`python -m evaluation hardening`, part fair_share, prints `grpc_call_seconds`)."""
FORGET_AFTER_TURNS = 1024
"""How often accounts without debt are forgotten, in turns."""


@dataclass
class _Account:
    """One caller: what is left of its budget, and its calls."""

    budget: Budget
    left_seconds: float
    since: float
    virtual_seconds: float = 0.0
    """Its virtual clock: what it has used, from the place in the queue at which it came."""
    working: int = 0
    waiting: deque[asyncio.Future[bool]] = field(default_factory=deque)

    def refill(self, now: float) -> None:
        left = self.left_seconds + self.budget.ratio * max(0.0, now - self.since)
        self.left_seconds, self.since = min(BURST_SECONDS, left), now

    def over_budget(self, now: float) -> bool:
        self.refill(now)
        return self.left_seconds <= 0

    def wants_more(self) -> bool:
        """Whether a call waits that may begin; calls that were given up meanwhile are removed."""
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()
        return bool(self.waiting) and self.working < self.budget.slots


@dataclass
class Turn:
    """One call: it has its turn, or waits for it."""

    turns: Turns
    who: Principal
    cost: Cost
    over_budget: bool = False
    held: bool = False
    """Whether it has begun and goes on."""
    worked_seconds: float = 0.0
    """What it has cost since it began, and what rest has not followed yet."""


_turn: ContextVar[Turn | None] = ContextVar("turn", default=None)


async def give_way() -> None:
    """Let others have their turn; call it between parts of long work, about every 2 ms."""
    if (turn := _turn.get()) is None:
        await asyncio.sleep(0)
    else:
        await turn.turns.give_way(turn)


@asynccontextmanager
async def alone(lock: asyncio.Lock) -> AsyncIterator[None]:
    """Hold a lock that other calls of the same caller hold across `give_way`: who waits for it has no turn meanwhile,
    so that the one who holds it can go on."""
    turn = _turn.get()
    if turn is None or not lock.locked():
        async with lock:
            yield
    else:
        turn.turns.leave(turn)
        async with lock:
            await turn.turns.come_back(turn)
            yield


class Turns:
    """Gives callers their turns. Single-threaded: belongs to the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds that never jump."""
        self._clock = clock
        self._accounts: dict[Principal, _Account] = {}
        self._waiting: dict[Principal, _Account] = {}
        self._virtual_seconds = 0.0
        self._over_again_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._turns = 0

    @asynccontextmanager
    async def turn(self, who: Principal, cost: Cost) -> AsyncIterator[None]:
        """The caller's turn; at its end it is charged what `cost` has collected, and what gRPC takes for a call."""
        cost.add(CALL_SECONDS)
        turn = Turn(self, who.counted_as, cost)
        await self._begin(turn)
        token = _turn.set(turn)
        try:
            yield
        finally:
            try:
                _turn.reset(token)
            except ValueError:  # gRPC closes a stream that was cancelled from another context
                pass
            self.leave(turn)

    async def give_way(self, turn: Turn) -> None:
        """Charge what the turn has cost so far. A caller that is over its budget now waits for its next turn."""
        account = self._account(turn.who)
        self._take(turn, account)
        if account.over_budget(self._clock()):
            self.leave(turn)
            await asyncio.sleep(0)  # a turn that may go on at once would not let the event loop do anything else
            await self.come_back(turn)
        else:
            await asyncio.sleep(0)

    def leave(self, turn: Turn) -> None:
        """End a turn, for good or for a while."""
        account = self._account(turn.who)
        self._take(turn, account)
        if not turn.held:  # it was given up while it waited to go on
            return
        worked, turn.worked_seconds, turn.held = turn.worked_seconds, 0.0, False
        account.working -= 1
        if turn.over_budget:
            rest = worked * (1 / OVER_BUDGET_RATIO - 1)
            self._over_again_at = max(self._over_again_at, self._clock()) + rest
        self._turns += 1
        if self._turns % FORGET_AFTER_TURNS == 0:
            self._forget(self._clock())
        self._dispatch()

    def _take(self, turn: Turn, account: _Account) -> None:
        """Charge what the turn has cost since the last time."""
        seconds = turn.cost.take()
        turn.worked_seconds += seconds
        self._charge(account, seconds)

    async def come_back(self, turn: Turn) -> None:
        """Wait for the turn again, before other calls of the caller."""
        await self._begin(turn, first=True)

    def charge(self, who: Principal, seconds: float) -> None:
        """Take from a caller's budget what it cost without a turn of its own."""
        self._charge(self._account(who.counted_as), seconds)

    async def _begin(self, turn: Turn, *, first: bool = False) -> None:
        """Wait for the turn; `first` puts the call before other calls of its caller."""
        account = self._account(turn.who)
        ready = asyncio.get_running_loop().create_future()
        if first:
            account.waiting.appendleft(ready)
        else:
            account.waiting.append(ready)
        self._waiting[turn.who] = account
        self._dispatch()
        try:
            await ready
        except asyncio.CancelledError:
            if not ready.cancelled():  # the turn came in the moment in which the call was given up
                turn.over_budget, turn.held = ready.result(), True
                self.leave(turn)
            raise
        turn.over_budget, turn.held = ready.result(), True

    def _charge(self, account: _Account, seconds: float) -> None:
        account.refill(self._clock())
        # The debt is bounded, so that a caller that has stopped is served like others again: a tenant after three
        # seconds, an agent after twenty.
        account.left_seconds = max(-BURST_SECONDS, account.left_seconds - seconds)
        account.virtual_seconds += seconds

    def _dispatch(self) -> None:
        """Give turns to all who may begin now; look again when that may change by itself."""
        now = self._clock()
        for who in [who for who, account in self._waiting.items() if not account.waiting]:
            del self._waiting[who]
        while True:
            ready = [account for account in self._waiting.values() if account.wants_more()]
            within = [account for account in ready if not account.over_budget(now)]
            if within:
                self._give(_least_used(within), over_budget=False)
            elif ready and now >= self._over_again_at:
                self._give(_least_used(ready), over_budget=True)
                # The rest follows when the turn ends: one that waits for a slow reader must not hold the others up.
                self._over_again_at = now + CALL_SECONDS / OVER_BUDGET_RATIO
            else:
                break
        if ready and self._timer is None:
            delay = max(0.0, self._over_again_at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self.look)

    def look(self) -> None:
        """Time has passed: give turns to callers that may begin by now."""
        self._timer = None
        self._dispatch()

    def _give(self, account: _Account, *, over_budget: bool) -> None:
        account.virtual_seconds = max(account.virtual_seconds, self._virtual_seconds)
        self._virtual_seconds = account.virtual_seconds
        account.working += 1
        account.waiting.popleft().set_result(over_budget)

    def _account(self, who: Principal) -> _Account:
        if (account := self._accounts.get(who)) is None:
            account = self._accounts[who] = _Account(BUDGETS[who.role], BURST_SECONDS, self._clock())
        return account

    def _forget(self, now: float) -> None:
        """Remove accounts that are as good as new."""
        for who, account in list(self._accounts.items()):
            account.refill(now)
            if not account.working and not account.waiting and account.left_seconds >= BURST_SECONDS:
                del self._accounts[who]


def _least_used(accounts: Iterable[_Account]) -> _Account:
    return min(accounts, key=lambda account: account.virtual_seconds)
