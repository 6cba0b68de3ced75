"""What is known of a connection and of an address before, and besides, who calls: how often they call without being
known, and how many of their calls they give up.

gRPC spends about half a millisecond on every call before code of ours sees it, also on a call that is cancelled at
once. A connection may have `listener.STREAMS_OF_A_CONNECTION` calls open, and gRPC counts a call as open until its
handler has ended, cancelled or not. So a connection that floods is slowed down by keeping its calls for a while: gRPC
then refuses its further calls by itself, at next to no cost (docs/adr/0023-nobody-uses-the-provider-up.md).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pharoah_serving.quotas import TokenBucket

T = TypeVar("T")

WINDOW_SECONDS = 10.0
"""Calls of a connection are counted in windows of this length."""
MIN_CANCELLED = 200
"""Cancelled calls in one window before their share counts: twice the streams of a connection, so that a client that is
closed in the middle of everything is not refused afterwards."""
MAX_CANCELLED_RATIO = 0.75
QUIET_CALLS = 20
"""Calls in one window that a probe of health makes at most: two a second."""
PENALTY_SECONDS = 60.0
"""How long the calls of a connection that cancels most of its calls are refused."""
KEPT_SECONDS = 30.0
"""How long a call is kept that is refused because of a flood: a hundred connections full of such calls (100 each) then
cost 330 calls a second, a sixth of what the event loop can take."""
MAX_KEPT_CALLS = 8192
"""Calls that are kept at once, all peers together; one more is refused at once, and its connection is closed."""
QUICK_ANSWERS, QUICK_ANSWERS_PER_SECOND = 64, 20.0
"""Calls that end at once although no work is done for them: of strangers from one address, of one caller that has too
many calls inside, and those that one caller cancels. Further ones are kept. A load balancer asks for the health a few
times a second."""
REMEMBERED_PEERS = 65_536
"""Connections and addresses whose conduct is remembered; the one that was quiet for longest goes first."""


@dataclass
class _Conduct:
    """Calls of one connection in the present window."""

    since: float
    calls: int = 0
    cancelled: int = 0
    refused_until: float = 0.0

    def turn(self, now: float) -> None:
        if now - self.since >= WINDOW_SECONDS:
            self.since, self.calls, self.cancelled = now, 0, 0


def is_one_connection(peer: str) -> bool:
    """Whether gRPC's name of a peer is that of one connection; all connections of a unix socket share theirs."""
    return peer.startswith("ip")


def address_of(peer: str) -> str:
    """The address of a peer as gRPC writes it, without the port: `ipv4:127.0.0.1:51234` -> `ipv4:127.0.0.1`."""
    return peer.rpartition(":")[0] if is_one_connection(peer) else peer


@dataclass
class Peers:
    """Single-threaded: belongs to the event loop."""

    clock: Callable[[], float] = time.monotonic
    """Seconds that never jump."""
    to_close: set[str] = field(default_factory=set)
    """Connections, as gRPC names them, that should be closed; `connections.ConnectionWatch` takes them."""
    known: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Connections of known callers, and when they last called: the others are closed first."""
    _conduct: OrderedDict[str, _Conduct] = field(default_factory=OrderedDict)
    _quick: OrderedDict[str, TokenBucket] = field(default_factory=OrderedDict)
    _kept: int = 0
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    def count_call(self, peer: str) -> bool:
        """Count a call of a connection; whether its calls are refused now."""
        conduct = self._get_conduct(peer)
        conduct.calls += 1
        return self.clock() < conduct.refused_until

    def gave_up(self, peer: str) -> None:
        """A call was cancelled by its client although there was time left. A connection on which that happens to most
        calls is refused for a while, and closed."""
        conduct = self._get_conduct(peer)
        conduct.cancelled += is_one_connection(peer)
        if conduct.cancelled >= MIN_CANCELLED and conduct.cancelled > MAX_CANCELLED_RATIO * conduct.calls:
            conduct.refused_until = self.clock() + PENALTY_SECONDS
            self.to_close.add(peer)

    def is_refused(self, peer: str) -> bool:
        """Whether calls of a connection are refused now, because it gives most of them up."""
        conduct = self._conduct.get(peer)
        return conduct is not None and self.clock() < conduct.refused_until

    def too_often(self, source: str) -> bool:
        """Count a call for which no work is done, by address or caller; whether there are more than are answered at
        once."""
        now = self.clock()
        if (bucket := self._quick.get(source)) is None:
            bucket = self._quick[source] = TokenBucket.full(QUICK_ANSWERS, QUICK_ANSWERS_PER_SECOND, now)
            _bind(self._quick)
        self._quick.move_to_end(source)
        return not bucket.take(1.0, now)

    def is_known(self, peer: str) -> None:
        """A known caller calls over this connection."""
        self.known[peer] = self.clock()
        self.known.move_to_end(peer)
        _bind(self.known)

    def is_quiet(self, peer: str) -> bool:
        """Whether a connection has made few calls lately."""
        return self._get_conduct(peer).calls <= QUIET_CALLS

    async def keep(self, peer: str) -> None:
        """Keep a call for a while, also when its client cancels it meanwhile; ends early when the server ends.

        When too many are kept already this one is not, and its connection is closed.
        """
        if self._kept >= MAX_KEPT_CALLS:
            self.to_close.add(peer)
            return
        self._kept += 1
        waiting = asyncio.ensure_future(self._closing.wait())
        until = asyncio.get_running_loop().time() + KEPT_SECONDS
        cancelled = False
        try:
            while not waiting.done() and (left := until - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.wait({waiting}, timeout=left)
                except asyncio.CancelledError:
                    cancelled = True
        finally:
            self._kept -= 1
            waiting.cancel()
        if cancelled:
            raise asyncio.CancelledError

    def close(self) -> None:
        """The server ends: let all kept calls go."""
        self._closing.set()

    def _get_conduct(self, peer: str) -> _Conduct:
        now = self.clock()
        if (conduct := self._conduct.get(peer)) is None:
            conduct = self._conduct[peer] = _Conduct(now)
            _bind(self._conduct)
        self._conduct.move_to_end(peer)
        conduct.turn(now)
        return conduct


def _bind(remembered: OrderedDict[str, T]) -> None:
    while len(remembered) > REMEMBERED_PEERS:
        remembered.popitem(last=False)
