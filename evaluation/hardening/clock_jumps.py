"""A provider whose clock jumps, in simulated time: its own code, the clock passed in, and tenants that judge it.

One game is a provider of a few days. Its clock jumps by a second to fifty years, forwards or backwards, at a step of
sealing, while it is idle, or while it is restarted. It stays wrong for a second to three days, and is right again then.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah.sidecar.log_client import LogClient, VerificationError
from pharoah_protocol.tables.epoch_head import HeadError
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.vocabulary import Role
from pharoah_provider.exchange_server import ExchangeServer
from pharoah_provider.fleet import Fleet
from pharoah_provider.node_forecasts import NodeForecasts
from pharoah_provider.publication import AUDIT_RETENTION_SECONDS
from pharoah_provider.services.health import Health
from pharoah_provider.services.upkeep import Upkeep
from pharoah_provider.storage.retention import RetentionTask, retention
from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.errors import ProviderError
from pharoah_serving.peers import Peers
from pharoah_serving.principals import Principal
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.quotas import Quotas
from tests.harness.clock import SimulatedClock
from tests.harness.loopback import ticket
from tests.harness.publisher import PublisherSite, publisher_site

DAY_SECONDS = 86_400.0
SHORTEST_JUMP_SECONDS, MAX_JUMP_SECONDS = 1.0, 50 * 365 * DAY_SECONDS
SHORTEST_WRONG_SECONDS, MAX_WRONG_SECONDS = 1.0, 3 * DAY_SECONDS
MINUTE_SECONDS = 60.0
MAX_TICKS = 40
"""Ticks of upkeep while the clock is wrong; a minute apart, or further when it is wrong for long."""
TENANT = Principal(Role.TENANT, "acme")


class Moment(StrEnum):
    """When a clock jumps."""

    SEED = "new_epoch_seed"
    COMMIT = "put_epoch"
    APPEND = "append"
    SERVE = "serve"
    CHECKPOINT = "put_checkpoint"
    IDLE = "idle"
    RESTART = "restart"
    FIRST_START = "first start"


@dataclass
class Tenants:
    """One tenant that remembers the log, and one without a memory at each question."""

    public: bytes
    remembering: LogClient
    proofs: list[str] = field(default_factory=list)
    """What was proven of the provider."""

    @classmethod
    def of(cls, public: bytes) -> Tenants:
        return cls(public, LogClient(Ed25519PublicKey.from_public_bytes(public), (), None))

    def accept(self, site: PublisherSite, now: float) -> bool:
        """Whether both accept what is served; what an answer proves is noted."""
        forgetful = LogClient(Ed25519PublicKey.from_public_bytes(self.public), (), None)
        answers = [self._accepts(tenant, site, now) for tenant in (self.remembering, forgetful)]
        return all(answers)

    def _accepts(self, tenant: LogClient, site: PublisherSite, now: float) -> bool:
        log = site.publisher.log
        try:
            epoch = site.publisher.epoch()
            while not tenant.follow(log.entries(tenant.size), log.checkpoint):
                pass
            tenant.verify(epoch.body, epoch.signature, site.publisher.list_revoked(), now)
        except VerificationError as error:
            self._note(error)
            return False
        except (HeadError, ProviderError):
            return False
        return True

    def _note(self, error: VerificationError) -> None:
        try:
            self.proofs.append(prove(error.evidence or {}, self.public))
        except InvalidEvidenceError:
            pass


@dataclass
class Outcome:
    """What came of one game."""

    survived: bool
    seeds_lost: int
    convictions: int
    what: str


@dataclass(frozen=True)
class Running:
    """A provider without its port."""

    site: PublisherSite
    upkeep: Upkeep
    exchange: ExchangeServer
    audit: AuditLog

    async def asked(self, now: float) -> None:
        """A tenant asks, with a ticket that its node's agent signs at the right time."""
        signed = ticket(now=now)
        try:
            await self.exchange.offer(TENANT, signed.body, signed.signature)
        except ProviderError:
            pass
        self.audit.record(self.site.guard.now(), AuditRecord(Role.TENANT, TENANT.name, "GetOffer", status="OK"))


@asynccontextmanager
async def running(folder: Path, clock: SimulatedClock) -> AsyncIterator[Running]:
    """Everything of a provider that reads the clock. Raises ProviderError."""
    async with publisher_site(folder, clock) as site:
        audit, guarded = AuditLog(folder / "audit"), site.guard.clock
        try:
            audit.skip(site.publisher.log.tip.days)
            names = PseudonymKeys(site.keys, guarded.wall)
            old_rows = RetentionTask(site.store, retention({}), guarded.wall, guarded.steady)
            quotas, fleet = Quotas(), Fleet(guarded)
            forecasts = NodeForecasts(site.store, fleet, guarded, lambda content: content)
            upkeep = Upkeep(site.publisher, audit, names, Health((), Peers()), old_rows, site.guard, forecasts)
            exchange = ExchangeServer(site.store.nodes, site.keys, site.publisher, quotas, fleet, guarded)
            await site.publisher.open()
            await upkeep.begin()
            yield Running(site, upkeep, exchange, audit)
        finally:
            audit.close()


async def play(folder: Path, seed: int) -> Outcome:
    """One game."""
    chance, clock = random.Random(seed), SimulatedClock()
    moment = chance.choice(list(Moment))
    error = _between(chance, SHORTEST_JUMP_SECONDS, MAX_JUMP_SECONDS) * chance.choice((-1, 1))
    wrong_seconds = _between(chance, SHORTEST_WRONG_SECONDS, MAX_WRONG_SECONDS)
    again = chance.random() < 0.5
    what = f"seed {seed}: {error:+.0f} s at {moment}, for {wrong_seconds:.0f} s, {'restarted' if again else ''}"
    if moment is Moment.FIRST_START:
        clock.error = error
    async with running(folder, clock) as provider:
        tenants = Tenants.of(provider.site.keys.public)
        await _jump(provider, clock, moment, error)
        await _wait(provider, clock, 0.0 if moment is Moment.RESTART else wrong_seconds)
    if moment is Moment.RESTART or again:
        clock.forward(5.0)
        async with running(folder, clock) as provider:
            await _wait(provider, clock, wrong_seconds)
    clock.error = 0.0
    async with running(folder, clock) as provider:
        survived = await _right_again(provider, clock, tenants)
        lost = await _seeds_lost(folder, provider.site, clock.now)
    return Outcome(survived, lost, len(tenants.proofs), what)


async def play_without_restart(folder: Path, seed: int) -> Outcome:
    """One game in which the process that saw the jump also sees its end."""
    chance, clock = random.Random(seed), SimulatedClock()
    moment = chance.choice([moment for moment in Moment if moment is not Moment.RESTART])
    error = _between(chance, SHORTEST_JUMP_SECONDS, MAX_JUMP_SECONDS) * chance.choice((-1, 1))
    wrong_seconds = _between(chance, SHORTEST_WRONG_SECONDS, MAX_WRONG_SECONDS)
    what = f"seed {seed}: {error:+.0f} s at {moment}, for {wrong_seconds:.0f} s, in one process"
    if moment is Moment.FIRST_START:
        clock.error = error
    async with running(folder, clock) as provider:
        tenants = Tenants.of(provider.site.keys.public)
        await _jump(provider, clock, moment, error)
        await _wait(provider, clock, wrong_seconds)
        clock.error = 0.0
        survived = await _right_again(provider, clock, tenants)
        lost = await _seeds_lost(folder, provider.site, clock.now)
    return Outcome(survived, lost, len(tenants.proofs), what)


async def _jump(provider: Running, clock: SimulatedClock, moment: Moment, error: float) -> None:
    """The clock jumps at a step of sealing, which is due, or between two ticks."""
    clock.forward(DAY_SECONDS + MINUTE_SECONDS)
    if moment in (Moment.IDLE, Moment.RESTART, Moment.FIRST_START):
        await provider.upkeep.once()
        clock.error = error
        return
    with jumping(provider.site, moment, lambda: setattr(clock, "error", error)):
        await provider.upkeep.once()


@contextmanager
def jumping(site: PublisherSite, moment: Moment, jump: Callable[[], None]) -> Iterator[None]:
    """Call `jump` when a step of sealing begins."""
    owners: dict[Moment, Any] = {
        Moment.SEED: site.keys,
        Moment.COMMIT: site.store.published,
        Moment.APPEND: site.publisher.log,
        Moment.SERVE: site.publisher.log,
        Moment.CHECKPOINT: site.store.log,
    }
    owner = owners[moment]
    honest = getattr(owner, moment)

    def step(*arguments: Any) -> Any:
        jump()
        return honest(*arguments)

    with mock.patch.object(owner, str(moment), step):
        yield


async def _wait(provider: Running, clock: SimulatedClock, seconds: float) -> None:
    """Time passes with its ticks; tenants ask at each of them."""
    ticks = max(1, min(MAX_TICKS, int(seconds / MINUTE_SECONDS)))
    for _ in range(ticks):
        clock.forward(seconds / ticks)
        await provider.asked(clock.now)
        await provider.upkeep.once()


async def _right_again(provider: Running, clock: SimulatedClock, tenants: Tenants) -> bool:
    """Whether tenants accept what is served a minute after the clock is right, and a day later as well."""
    await _wait(provider, clock, MINUTE_SECONDS / 2)
    clock.forward(MINUTE_SECONDS / 4)
    within_a_minute = tenants.accept(provider.site, clock.now)
    for _ in range(3):
        clock.forward(DAY_SECONDS / 2)
        await provider.upkeep.once()
        within_a_minute = tenants.accept(provider.site, clock.now) and within_a_minute
    return within_a_minute


async def _seeds_lost(folder: Path, site: PublisherSite, now: float) -> int:
    """Epochs that an audit may ask for and that have no seed any more."""
    young = [
        record
        for record in await site.store.published.newest_epochs(1000)
        if now - record.began < AUDIT_RETENTION_SECONDS or abs(record.began - now) > AUDIT_RETENTION_SECONDS
    ]
    return sum(not (folder / "keys" / f"epoch-{record.epoch}.seed").exists() for record in young)


def _between(chance: random.Random, least: float, most: float) -> float:
    """Evenly distributed in the logarithm."""
    return math.exp(chance.uniform(math.log(least), math.log(most)))


def played(folder: Path, seed: int) -> Outcome:
    """One game: two of three end in the process in which they began."""
    game = play if seed % 3 == 0 else play_without_restart
    return asyncio.run(game(folder, seed))
