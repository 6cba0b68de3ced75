"""The private exchange, client side: which verdict rows does this job open on the offered node?

What the provider sees is the same for every job: one offer, two tables, two batches of 64 blinded elements.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass
from typing import Any

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah.courier.rpc import Provider, reason
from pharoah.exchange import voprf
from pharoah.exchange.group import GroupError, SodiumMissing
from pharoah.exchange.head import EpochHead, HeadError, merkle_root, verify_head
from pharoah.exchange.rows import ROW_BYTES, VerdictRow, open_row
from pharoah.proto.v1 import (
    DecideRequest,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    GetOfferResponse,
    GetTableRequest,
    NodeTicket,
)
from pharoah.rpc import Stub
from pharoah_archetypes import RUNGS, Fingerprint, canonical_input, rung_tokens

BATCH = 64
SCOPES = ("server", "device")
"""What the two classes of an offer describe: this server configuration, this device model."""


@dataclass(frozen=True)
class Match:
    """A row that was opened, and how specific it is."""

    rung: str
    scope: str
    row: VerdictRow


@dataclass(frozen=True)
class Answer:
    head: EpochHead
    matches: tuple[Match, ...]
    bytes_sent: int


class PrivateExchange:
    """Asks one provider. Keeps tables of the current epoch, which are the same for everybody."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._stub = Stub(provider.channel, "Exchange")
        self._tables: dict[tuple[int, bytes], list[bytes]] = {}
        self._offer_id = b""

    async def ask(self, fingerprint: Fingerprint, ticket: NodeTicket) -> Answer:
        """All rows this fingerprint opens for the ticket's node. Raises UnknownReason."""
        try:
            head = await self._head()
            offer = await self._call("GetOffer", GetOfferRequest(ticket=ticket))
            self._offer_id = offer.offer_id
            if len(offer.class_ids) != len(SCOPES):
                raise UnknownReason("the offer does not name the two classes it should")
            matches: list[Match] = []
            sent = 0
            for scope, class_id in zip(SCOPES, offer.class_ids, strict=True):
                found, size = await self._ask_class(fingerprint, head, offer, class_id)
                matches += [Match(rung, scope, row) for rung, row in found]
                sent += size
            return Answer(head, tuple(matches), sent)
        except grpc.aio.AioRpcError as error:
            raise UnknownReason(reason(error)) from None
        except (HeadError, GroupError) as error:
            raise UnknownReason(f"the provider's answer cannot be trusted: {error}") from None
        except SodiumMissing as error:
            raise UnknownReason(str(error)) from None

    async def decide(self, accept: bool) -> None:
        """Whether the offered node is taken: one bit, no reason. A provider that cannot be told does not matter."""
        if self._offer_id:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._call("Decide", DecideRequest(offer_id=self._offer_id, accept=accept))

    async def _head(self) -> EpochHead:
        signed = (await self._call("GetEpoch", GetEpochRequest())).head
        return verify_head(signed.body, signed.signature, self._provider.key, time.time())

    async def _ask_class(
        self, fingerprint: Fingerprint, head: EpochHead, offer: GetOfferResponse, class_id: bytes
    ) -> tuple[list[tuple[str, VerdictRow]], int]:
        table = await self._table(head, class_id)
        inputs = [canonical_input("arch", rung, rung_tokens(fingerprint, rung)) for rung in RUNGS]
        inputs += [secrets.token_bytes(32) for _ in range(BATCH - len(inputs))]
        blinds = [voprf.blind(value) for value in inputs]
        request = EvaluateRequest(
            offer_id=offer.offer_id,
            request_id=secrets.token_bytes(16),
            epoch=head.epoch,
            class_id=class_id,
            blinded=[element for _, element in blinds],
        )
        evaluated = list((await self._call("Evaluate", request)).evaluated)
        if len(evaluated) != BATCH:
            raise UnknownReason(f"the provider evaluated {len(evaluated)} of {BATCH} elements")
        outputs = [
            voprf.finalize(value, scalar, element)
            for value, (scalar, _), element in zip(inputs, blinds, evaluated, strict=True)
        ]
        rows = [open_row(table, output, head.epoch, class_id) for output in outputs]
        found = [(rung, row) for rung, row in zip(RUNGS, rows, strict=False) if row is not None]
        return found, request.ByteSize()

    async def _table(self, head: EpochHead, class_id: bytes) -> list[bytes]:
        """The sealed rows of a class, checked against the signed head."""
        expected = head.table(class_id)
        key = (head.epoch, class_id)
        if key not in self._tables:
            content = b""
            call = self._stub.GetTable(
                GetTableRequest(epoch=head.epoch, class_id=class_id),
                timeout=self._provider.timeout,
                metadata=self._provider.metadata,
            )
            async for chunk in call:
                content += chunk.rows
                if len(content) > expected.rows * ROW_BYTES:
                    raise HeadError("table: longer than the signed head says")
            rows = [content[at : at + ROW_BYTES] for at in range(0, len(content), ROW_BYTES)]
            if len(rows) != expected.rows or merkle_root(rows) != expected.root:
                raise HeadError("table: not the one the signed head commits to")
            self._tables[key] = rows
        return self._tables[key]

    async def _call(self, method: str, request: Any) -> Any:
        return await getattr(self._stub, method)(
            request, timeout=self._provider.timeout, metadata=self._provider.metadata
        )
