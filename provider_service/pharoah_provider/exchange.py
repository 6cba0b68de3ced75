"""The private exchange, server side: epochs, offers and evaluations. Learns nothing about what is asked."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from pharoah.exchange import voprf
from pharoah.exchange.group import GroupError
from pharoah.exchange.rows import ROW_BYTES
from pharoah_provider.domain import Node, Release
from pharoah_provider.epochs import Epoch, seal
from pharoah_provider.errors import Exhausted, Invalid, NotReady, Refused, Unknown
from pharoah_provider.keys import KeyFolder
from pharoah_provider.store import Store
from pharoah_provider.tickets import verified

BATCH = 64
OFFER_SECONDS = 600.0
CHUNK_BYTES = (1 << 20) // ROW_BYTES * ROW_BYTES
MOST_OFFERS = 100_000
ROTATE_SECONDS = 24 * 3600
"""A release is sealed again under a fresh seed after this long."""


@dataclass
class Offer:
    tenant: str
    node: Node
    epoch: int
    class_ids: tuple[bytes, ...]
    expires_at: float
    answers: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    """By request_id; a class is evaluated once per offer."""
    used: set[bytes] = field(default_factory=set)


class Exchange:
    """Serves the current epoch and the one before it, so that nobody is cut off in the middle of asking."""

    def __init__(self, store: Store, keys: KeyFolder) -> None:
        self._store = store
        self._keys = keys
        self._epochs: dict[int, Epoch] = {}
        self._offers: dict[bytes, Offer] = {}

    async def rotate(self, now: float) -> None:
        """Seal the newest release again if that is due: after a restart, after a day, for a node of no sealed class."""
        release = await self._store.newest_release()
        if release is None:
            return
        current = self._epochs[max(self._epochs)] if self._epochs else None
        if (
            current is None
            or now - current.head.not_before > ROTATE_SECONDS
            or not await self._groups() <= current.ids.keys()
        ):
            await self.publish(release)

    async def publish(self, release: Release) -> int:
        """Seal a release as the next epoch and serve it; the epoch's number."""
        newest = await self._store.newest_epoch()
        number = int(newest["epoch"]) + 1 if newest else 1
        epoch = await asyncio.to_thread(seal, release, number, self._keys, await self._groups())
        head = epoch.head
        await self._store.put_epoch(
            number, release.release, head.not_before, head.not_after, epoch.body, epoch.signature
        )
        self._epochs = {key: self._epochs[key] for key in sorted(self._epochs)[-1:]} | {number: epoch}
        return number

    async def _groups(self) -> set[tuple[str, str]]:
        nodes = await self._store.nodes()
        return {("server", node.context_id) for node in nodes} | {("device", node.device_id) for node in nodes}

    def epoch(self, number: int | None = None) -> Epoch:
        """The current epoch, or one that is still served. Raises NotReady before the first release, Unknown."""
        if not self._epochs:
            raise NotReady("nothing has been released yet")
        number = max(self._epochs) if number is None else number
        if number not in self._epochs:
            raise Unknown(f"epoch {number} is over")
        return self._epochs[number]

    async def offer(self, tenant: str, body: bytes, signature: bytes) -> tuple[bytes, Offer]:
        """An offer for the node a ticket names. Raises Refused, NotReady."""
        epoch = self.epoch()
        _, node = await verified(self._store, body, signature)
        try:
            ids = (epoch.ids["server", node.context_id], epoch.ids["device", node.device_id])
        except KeyError:
            raise NotReady("this node has just joined; the next epoch, within a minute, will know it") from None
        now = time.time()
        if len(self._offers) >= MOST_OFFERS:
            self._offers = {key: offer for key, offer in self._offers.items() if offer.expires_at > now}
        offer = Offer(tenant, node, epoch.head.epoch, ids, now + OFFER_SECONDS)
        offer_id = secrets.token_bytes(16)
        self._offers[offer_id] = offer
        return offer_id, offer

    def table(self, epoch: int, class_id: bytes) -> list[bytes]:
        """Rows of a class in chunks. Raises Unknown."""
        current = self.epoch(epoch)
        if class_id not in current.classes:
            raise Unknown("no such table in this epoch")
        content = b"".join(current.classes[class_id].rows)
        return [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]

    async def evaluate(
        self,
        tenant: str,
        offer_id: bytes,
        request_id: bytes,
        epoch: int,
        class_id: bytes,
        blinded: tuple[bytes, ...],
    ) -> tuple[bytes, ...]:
        """64 evaluated elements. Raises Invalid, Refused, Unknown, Exhausted."""
        offer = self.offer_of(tenant, offer_id)
        if len(request_id) != 16:
            raise Invalid(f"request_id: {len(request_id)} bytes, expected 16")
        if request_id in offer.answers:
            return offer.answers[request_id]
        if len(blinded) != BATCH:
            raise Invalid(f"blinded: {len(blinded)} elements, expected {BATCH}")
        if epoch != offer.epoch or class_id not in offer.class_ids:
            raise Unknown("no such class in this offer")
        current = self.epoch(epoch)
        if class_id in offer.used:
            raise Exhausted("this offer's evaluations are used up; ask for another")
        offer.used.add(class_id)
        secret = current.classes[class_id].secret
        try:
            answer = await asyncio.to_thread(lambda: tuple(voprf.evaluate(secret, element) for element in blinded))
        except GroupError:
            raise Invalid("blinded: not all are canonical group elements") from None
        offer.answers[request_id] = answer
        return answer

    def offer_of(self, tenant: str, offer_id: bytes) -> Offer:
        """Raises Refused for an offer that is over or somebody else's."""
        offer = self._offers.get(offer_id)
        if offer is None or offer.tenant != tenant or offer.expires_at < time.time():
            raise Refused("no such offer")
        return offer
