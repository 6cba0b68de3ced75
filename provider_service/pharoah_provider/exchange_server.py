"""The private exchange, server side: offers, evaluations, lookups. Of what is asked privately it learns nothing."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pharoah_archetypes.ladder import length_prefixed
from pharoah_learning.context_rule import identity
from pharoah_learning.release import ClassKey
from pharoah_learning.sealing import Epoch, SealedClass, compute_learned_input, verdict_row
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.tables.query import BATCH_ITEMS
from pharoah_protocol.tables.rows import ROW_BYTES
from pharoah_protocol.tables.signed_messages import ClassAnswer
from pharoah_protocol.vocabulary import Scope
from pharoah_protocol.voprf import protocol
from pharoah_protocol.voprf.group import GroupError
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.node_store import NodeStore
from pharoah_provider.ticket_check import verify
from pharoah_serving.clock import Clock
from pharoah_serving.costs import in_thread
from pharoah_serving.errors import Exhausted, Invalid, NotReady, Refused, Unknown
from pharoah_serving.keys import Keys
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import Quotas

OFFER_SECONDS = 600
CHUNK_BYTES = (1 << 20) // ROW_BYTES * ROW_BYTES
FORGET_SECONDS = 60
KEPT_LOOKUPS = 32

T = TypeVar("T")


@dataclass
class Offer:
    """One offer to one tenant, good for one question."""

    tenant: Principal
    node: Node
    context: tuple[str, ...]
    """The facts of the node that make its context. The others stay with the provider."""
    epoch: int
    class_ids: tuple[bytes, ...]
    expires_at: int
    node_state: IncidentState = QUIET
    """Confirmed while an incident of the node is open, or while the node is drained."""
    signature: bytes = b""
    answer: asyncio.Future[Any] | None = None
    """What its one question was answered, or will be."""
    request: bytes = b""
    """Hash of that question: the same one again costs nothing, another one is refused."""


class NumberedOffer(NamedTuple):
    """An offer with the id that its question names."""

    offer_id: bytes
    offer: Offer


class SignedTable(NamedTuple):
    """Rows of a class."""

    chunks: list[bytes]
    signature: bytes
    """Over all rows of the class."""


class SignedEvaluation(NamedTuple):
    """The answer to a private question."""

    classes: list[protocol.Evaluation]
    """In the order of the classes of the offer."""
    signature: bytes


class SignedLookup(NamedTuple):
    """The answer to a question in hashed mode."""

    rows: list[bytes]
    """By class and token; empty bytes where there is no row."""
    revoked: bytes
    """Digest of the list of revoked rows."""
    signature: bytes


@dataclass
class ExchangeServer:
    """Serves what the publisher has published."""

    nodes: NodeStore
    keys: Keys
    publisher: Publisher
    quotas: Quotas
    fleet: Fleet
    clock: Clock = field(default_factory=Clock)
    _offers: dict[bytes, Offer] = field(default_factory=dict)
    _forgotten_at: float = 0.0
    _lookups: dict[tuple[str, int, bytes], dict[bytes, tuple[bytes, bytes]]] = field(default_factory=dict)
    _lookups_change: threading.Lock = field(default_factory=threading.Lock)

    async def offer(self, tenant: Principal, body: bytes, signature: bytes) -> NumberedOffer:
        """An offer for the node a ticket names. Raises Refused, NotReady, Exhausted."""
        epoch = self.publisher.epoch()
        _, node = await verify(self.nodes, body, signature, self.clock)
        now = self.clock.wall()
        context = epoch.context_rule.relevant(node.server_facts)
        try:
            ids = (
                epoch.ids[ClassKey(scope=Scope.SERVER, group_id=identity(context))],
                epoch.ids[ClassKey(scope=Scope.DEVICE, group_id=node.device_id)],
            )
        except KeyError:
            raise NotReady("this node has just joined; the next epoch, within a minute, will know it") from None
        self.quotas.take_offer(tenant, now)
        self._forget_offers(now)
        state = self.fleet.state(node.node).offered
        offer = Offer(tenant, node, context, epoch.head.epoch, ids, int(now) + OFFER_SECONDS, state)
        offer_id = secrets.token_bytes(16)
        said = signed_messages.offer(offer_id, offer.epoch, offer.expires_at, ids, offer.node_state)
        offer.signature = sign(said, self.keys.signing_key)
        self._offers[offer_id] = offer
        return NumberedOffer(offer_id=offer_id, offer=offer)

    def _forget_offers(self, now: float) -> None:
        """Remove offers that have expired, once a minute."""
        if abs(now - self._forgotten_at) > FORGET_SECONDS:
            self._forgotten_at = now
            self._offers = {key: offer for key, offer in self._offers.items() if offer.expires_at > now}

    def offer_of(self, tenant: Principal, offer_id: bytes) -> Offer:
        """Raises Refused for an offer that is over or somebody else's."""
        offer = self._offers.get(offer_id)
        if offer is None or offer.tenant != tenant or offer.expires_at < self.clock.wall():
            raise Refused("no such offer")
        return offer

    def table(self, epoch: int, class_id: bytes, first_row: int) -> SignedTable:
        """Rows of a class in chunks, and the signature over all of it. Raises Unknown, Invalid."""
        current = self.publisher.epoch(epoch)
        if class_id not in current.classes:
            raise Unknown("no such table in this epoch")
        sealed = current.classes[class_id]
        content = sealed.content
        if first_row * ROW_BYTES > len(content):
            raise Invalid(f"first_row: {first_row}, the table has {len(content) // ROW_BYTES} rows")
        chunks = [content[at : at + CHUNK_BYTES] for at in range(first_row * ROW_BYTES, len(content), CHUNK_BYTES)]
        return SignedTable(chunks=chunks, signature=sealed.signature)

    async def evaluate(
        self, tenant: Principal, offer_id: bytes, request_id: bytes, blinded: list[bytes]
    ) -> SignedEvaluation:
        """Elements and proof per class, and the signature over them. Raises Invalid, Refused, Unknown, Exhausted."""
        offer = self.offer_of(tenant, offer_id)
        _check_sizes(request_id, "blinded", blinded)
        epoch = self.publisher.epoch(offer.epoch)

        def answer() -> SignedEvaluation:
            sealed = [epoch.classes[class_id] for class_id in offer.class_ids]
            try:
                done = [protocol.evaluate(one.secret, one.public, blinded) for one in sealed]
            except GroupError:
                raise Invalid("blinded: not all are canonical group elements") from None
            answers = [
                ClassAnswer(class_id=one.class_id, elements=answered.elements, proof=answered.proof)
                for one, answered in zip(sealed, done, strict=True)
            ]
            said = signed_messages.evaluation(offer_id, request_id, blinded, answers)
            return SignedEvaluation(classes=done, signature=sign(said, self.keys.signing_key))

        return await self._once(offer, length_prefixed(b"evaluate", request_id, *blinded), answer)

    async def lookup(self, tenant: Principal, offer_id: bytes, request_id: bytes, tokens: list[bytes]) -> SignedLookup:
        """Hashed mode: rows by class and token, the digest of the list of revoked rows, and the signature over both.

        Raises as `evaluate` does.
        """
        offer = self.offer_of(tenant, offer_id)
        _check_sizes(request_id, "tokens", tokens)
        epoch = self.publisher.epoch(offer.epoch)

        def answer() -> SignedLookup:
            revoked = self.publisher.list_revoked_rows(offer.epoch)
            tables = [self._by_token(tenant, epoch, class_id) for class_id in offer.class_ids]
            rows = [self._find_row(table, token, revoked) for table in tables for token in tokens]
            digest = signed_messages.digest(signed_messages.encode_revoked(offer.epoch, revoked) if revoked else b"")
            key = self.hash_key(tenant, offer.epoch)
            said = signed_messages.look_up(offer_id, request_id, key, digest, tokens, rows)
            return SignedLookup(rows=rows, revoked=digest, signature=sign(said, self.keys.signing_key))

        return await self._once(offer, length_prefixed(b"lookup", request_id, *tokens), answer)

    def hash_key(self, tenant: Principal, epoch: int) -> bytes:
        """What a tenant keys its hashes with, in one epoch."""
        info = length_prefixed(b"pharoah/hashed/v1", epoch.to_bytes(8, "big"), tenant.name.encode())
        return HKDF(SHA256(), 32, None, info).derive(self.keys.hashed_key)

    async def _once(self, offer: Offer, request: bytes, work: Callable[[], T]) -> T:
        """The answer to an offer's one question. Asked again, also while it is being worked on, it is the same."""
        digest = hmac.digest(b"request", request, "sha256")
        if offer.answer is None:
            self.quotas.take_question(offer.tenant, self.clock.wall())
            offer.request = digest
            offer.answer = asyncio.ensure_future(in_thread(work))
            # Somebody has looked at what went wrong, even if nobody waits for it any more.
            offer.answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        elif not hmac.compare_digest(offer.request, digest):
            raise Exhausted("this offer's question was asked; ask for another offer")
        answer: T = await asyncio.shield(offer.answer)
        return answer

    def _find_row(self, table: dict[bytes, tuple[bytes, bytes]], token: bytes, revoked: set[bytes]) -> bytes:
        name, row = table.get(token, (b"", b""))
        return b"" if name in revoked else row

    def _by_token(self, tenant: Principal, epoch: Epoch, class_id: bytes) -> dict[bytes, tuple[bytes, bytes]]:
        """A class's rows, each with its name, by the tokens this tenant has for them in this epoch."""
        key = (tenant.name, epoch.head.epoch, class_id)
        if (known := self._lookups.get(key)) is None:
            hashed_key = self.hash_key(tenant, epoch.head.epoch)
            sealed: SealedClass = epoch.classes[class_id]
            known = {
                hmac.digest(hashed_key, compute_learned_input(row), "sha256"): (
                    class_id + sealed.tags[row.id],
                    verdict_row(row).pack(),
                )
                for row in sealed.rows
            }
            with self._lookups_change:  # several threads look up
                while len(self._lookups) >= KEPT_LOOKUPS:
                    del self._lookups[next(iter(self._lookups))]
                self._lookups[key] = known
        return known


def _check_sizes(request_id: bytes, name: str, items: list[bytes]) -> None:
    if len(request_id) != 16:
        raise Invalid(f"request_id: {len(request_id)} bytes, expected 16")
    if len(items) != BATCH_ITEMS:
        raise Invalid(f"{name}: {len(items)} elements, expected {BATCH_ITEMS}")
    if any(len(item) != 32 for item in items):
        raise Invalid(f"{name}: not all are of 32 bytes")
