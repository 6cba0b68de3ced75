"""The tenant's side of the exchange: finds the verdict rows that a job opens on the offered node.

In private mode what the provider sees is the same for every job: one offer, 64 blinded elements, and half a second
after its answer one bit. Everything an answer holds is checked, and all of it opened, before any of it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import Any

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.log_client import LogClient, ServedEpoch, VerificationError, read_witnesses
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah.sidecar.table_cache import TableCache
from pharoah_archetypes import Fingerprint, GrammarError
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.log.view import View
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import is_signed
from pharoah_protocol.tables.query import BATCH_ITEMS, BlindedQuery, QueryItem, blind, inputs_of, keyed_hashes
from pharoah_protocol.tables.rows import VerdictRow, open_row, row_tag
from pharoah_protocol.tables.signed_messages import ClassAnswer
from pharoah_protocol.v1 import (
    DecideRequest,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    GetOfferResponse,
    LookupRequest,
    NodeTicket,
)
from pharoah_protocol.vocabulary import Privacy
from pharoah_protocol.voprf import protocol

SCOPES = ("server", "device")
"""What the two classes of an offer describe: this server configuration, this device model."""
DECIDE_AFTER_SECONDS = 0.5
"""Seconds from the answer to the decision, whatever the answer was: the time between must not depend on it."""
LOG_PAGES_LIMIT = 64
AUDITED_INPUTS = 8
"""One of so many answers of the hashed mode is asked for again privately."""


@dataclass(frozen=True)
class Match:
    """A row that was opened, and how specific it is."""

    kind: str
    rung: str
    scope: str
    row: VerdictRow


@dataclass(frozen=True)
class Answer:
    """What the provider has answered about one job, verified and opened."""

    served: ServedEpoch
    matches: tuple[Match, ...]
    bytes_sent: int
    record: dict[str, Any] = field(default_factory=dict)
    """What the provider has signed of it, and what opens it: kept on this machine (see `pharoah audit`)."""
    node_state: IncidentState = QUIET
    """Confirmed while an incident of the offered node is open."""


class ExchangeClient:
    """Asks one provider. Keeps what it has read of the log, and tables of the current epoch."""

    def __init__(self, provider: ProviderConnection, settings: Settings) -> None:
        """Raises UnknownReason when what this machine remembers of the provider cannot be read."""
        self._provider, self._hashed = provider, settings.privacy == Privacy.HASHED
        folder = exchange_folder(settings)
        self._stub = Stub(provider.channel, "Exchange")
        self._trust = LogClient(provider.key, read_witnesses(settings.witnesses_file), folder)
        self._tables = TableCache(provider, folder)
        self._offer_id, self.answered_at = b"", 0.0

    async def ask(self, fingerprint: Fingerprint, ticket: NodeTicket, name: Pseudonym | None = None) -> Answer:
        """All rows this fingerprint, and its pseudonym, open for the ticket's node.

        Raises UnknownReason and VerificationError.
        """
        try:
            inputs = inputs_of(fingerprint, name)
        except GrammarError as error:
            raise UnknownReason(f"the fingerprint has no skeleton: {error}") from None
        return await self._answered(inputs, ticket)

    async def cover(self, ticket: NodeTicket) -> None:
        """Ask about nothing, for a job that has nothing to ask: that it has not must not show.

        Raises UnknownReason and VerificationError.
        """
        await self._answered((), ticket)

    async def _answered(self, inputs: tuple[QueryItem, ...], ticket: NodeTicket) -> Answer:
        try:
            if not self._hashed:
                return await self._privately(inputs, ticket)
            answer = await self._by_hashes(inputs, ticket)
            if secrets.randbelow(AUDITED_INPUTS):
                return answer
            try:
                await self._audit(inputs, ticket, answer)
            except grpc.aio.AioRpcError as error:  # it may be at a limit, or not want to be found out
                return replace(answer, record={**answer.record, "refused_audit": reason(error)})
            return replace(answer, record={**answer.record, "audited": True})
        except grpc.aio.AioRpcError as error:
            raise UnknownReason(reason(error)) from None
        except VerificationError:
            raise
        except ValueError as error:  # a head, a group element, a proof, a part of any length
            raise VerificationError(f"the provider's answer is malformed: {error}") from None

    async def epoch(self) -> ServedEpoch:
        """The epoch in force, from a log that was read on. Raises VerificationError and AioRpcError."""
        for _ in range(LOG_PAGES_LIMIT):
            answer = await self._call("GetEpoch", GetEpochRequest(log_size=self._trust.size))
            if self._trust.follow(list(answer.entries), answer.checkpoint):
                return self._trust.verify(answer.head.body, answer.head.signature, answer.revoked, time.time())
        raise VerificationError(f"the provider's log does not end after {LOG_PAGES_LIMIT} pages")

    @property
    def remembers(self) -> bool:
        """Whether what is read of the log is remembered on this machine."""
        return self._trust.remembers

    @property
    def log(self) -> View:
        """The provider's log as far as it was read."""
        return self._trust.view

    async def decide(self, accept: bool) -> None:
        """Whether the offered node is taken: one bit, no reason. A provider that cannot be reached does not matter."""
        if self._offer_id:
            await asyncio.sleep(max(0.0, self.answered_at + DECIDE_AFTER_SECONDS - time.monotonic()))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._call("Decide", DecideRequest(offer_id=self._offer_id, accept=accept))

    async def _privately(self, inputs: tuple[QueryItem, ...], ticket: NodeTicket) -> Answer:
        (served, offer), question = await self._offered(ticket), blind(inputs)
        tables = [await self._tables.rows(served, class_id) for class_id in offer.class_ids]
        request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=question.blinded)
        response = await self._call("Evaluate", request)
        self.answered_at = time.monotonic()
        record = self._checked(served, offer, request, response, question)
        matches: list[Match] = []
        for scope, class_id, table, answer in zip(SCOPES, offer.class_ids, tables, response.classes, strict=True):
            outputs = question.outputs(answer.evaluated)
            matches += _opened(served, scope, class_id, table, inputs, outputs)
        record["private"]["rows"] = [match.row.pack().hex() for match in matches]
        return Answer(served, tuple(matches), request.ByteSize(), record, _node_state(offer))

    async def _by_hashes(self, inputs: tuple[QueryItem, ...], ticket: NodeTicket) -> Answer:
        served, offer = await self._offered(ticket)
        tokens = keyed_hashes(inputs, offer.hashed_key)
        request = LookupRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), tokens=tokens)
        response = await self._call("Lookup", request)
        self.answered_at = time.monotonic()
        in_force, rows = response.revoked, list(response.rows)
        statement = signed_messages.looked_up(
            offer.offer_id, request.request_id, offer.hashed_key, in_force, tokens, rows
        )
        if (
            not is_signed(statement, response.signature, self._provider.key)
            or len(response.rows) != len(SCOPES) * BATCH_ITEMS
        ):
            raise VerificationError("the provider's answer is not signed, or not one to this question")
        if signed_messages.digest(served.revoked_list) != in_force:
            served = await self._again(served, in_force)
        try:
            matches = [
                Match(asked.kind, asked.rung, scope, VerdictRow.unpack(response.rows[BATCH_ITEMS * at + number]))
                for at, scope in enumerate(SCOPES)
                for number, asked in enumerate(inputs)
                if response.rows[BATCH_ITEMS * at + number]
            ]
        except ValueError as error:
            raise VerificationError(str(error)) from None
        record = {**_signed(served, offer), "looked_up": statement.hex(), "signature": response.signature.hex()}
        record["hashed_key"] = offer.hashed_key.hex()
        return Answer(served, tuple(matches), request.ByteSize(), record, _node_state(offer))

    async def _again(self, before: ServedEpoch, in_force: bytes) -> ServedEpoch:
        """The epoch once more, when a row was revoked while we asked. Raises UnknownReason and VerificationError."""
        served = await self.epoch()
        if served.head.epoch != before.head.epoch:
            raise UnknownReason("the provider's epoch changed in between")
        if signed_messages.digest(served.revoked_list) != in_force:
            raise VerificationError("the provider's answer is of another list of revoked rows than the one in its log")
        return served

    async def _offered(self, ticket: NodeTicket) -> tuple[ServedEpoch, GetOfferResponse]:
        """An offer in the epoch in force; once more when the epoch has changed in between."""
        for _ in range(2):
            served, offer = await asyncio.gather(self.epoch(), self._call("GetOffer", GetOfferRequest(ticket=ticket)))
            if offer.epoch == served.head.epoch:
                break
        statement = _offer_bytes(offer)
        if not is_signed(statement, offer.signature, self._provider.key) or len(offer.class_ids) != len(SCOPES):
            raise VerificationError("the offer is not signed, or does not name the two classes it should")
        if offer.epoch != served.head.epoch:
            raise VerificationError("the offer is of another epoch than the one in force")
        self._offer_id = offer.offer_id
        return served, offer

    def _checked(
        self, served: ServedEpoch, offer: GetOfferResponse, request: Any, response: Any, question: BlindedQuery
    ) -> dict[str, Any]:
        """The signed record of an evaluation whose proofs hold. Raises VerificationError."""
        blinded = list(question.blinded)
        answers = [
            ClassAnswer(class_id=class_id, elements=list(answer.evaluated), proof=answer.proof)
            for class_id, answer in zip(offer.class_ids, response.classes, strict=False)
        ]
        statement = signed_messages.evaluation(offer.offer_id, request.request_id, blinded, answers)
        if len(response.classes) != len(SCOPES) or not is_signed(statement, response.signature, self._provider.key):
            raise VerificationError("the provider's answer is not signed, or not one to this question")
        record = {**_signed(served, offer), "evaluation": statement.hex(), "signature": response.signature.hex()}
        for class_id, evaluated, proof in answers:
            try:
                protocol.verify(served.head.table(class_id).public_key, blinded, evaluated, proof)
            except protocol.ProofError as error:
                raise VerificationError(str(error), {"kind": "evaluation", **record}) from None
        private = {
            "inputs": [asked.value.hex() for asked in question.inputs],
            "blinds": [scalar.hex() for scalar in question.scalars],
        }
        return {**record, "classes": [class_id.hex() for class_id in offer.class_ids], "private": private}

    async def _audit(self, inputs: tuple[QueryItem, ...], ticket: NodeTicket, hashed: Answer) -> None:
        """Ask the same again, privately. Raises VerificationError when the sealed table holds another answer."""
        for _ in range(2):
            private = await self._privately(inputs, ticket)
            same = (hashed.served.body, hashed.served.revoked) == (private.served.body, private.served.revoked)
            if same and set(hashed.matches) == set(private.matches):
                return
            if same:
                classes = [bytes.fromhex(part) for part in private.record["classes"]]
                tables = {name.hex(): b"".join(await self._tables.rows(private.served, name)).hex() for name in classes}
                raise VerificationError(
                    "the provider's hashed answer is not what its sealed table holds",
                    {
                        "kind": "hashed answer",
                        "hashed": hashed.record,
                        "evaluation": private.record,
                        "tables": tables,
                        "revoked": private.served.revoked_list.hex(),
                    },
                )
            hashed = await self._by_hashes(inputs, ticket)  # something was published in between

    async def _call(self, method: str, request: Any) -> Any:
        return await getattr(self._stub, method)(
            request, timeout=self._provider.timeout, metadata=self._provider.metadata
        )


def _opened(
    served: ServedEpoch,
    scope: str,
    class_id: bytes,
    table: list[bytes],
    inputs: tuple[QueryItem, ...],
    outputs: list[bytes],
) -> list[Match]:
    epoch = served.head.epoch
    rows = [
        open_row(table, output, epoch, class_id)
        if class_id + row_tag(output, epoch, class_id) not in served.revoked
        else None
        for output in outputs
    ]
    return [
        Match(asked.kind, asked.rung, scope, row)
        for asked, row in zip(inputs, rows, strict=True)
        if row is not None and (row.rung == asked.rung)
    ]


def _node_state(offer: GetOfferResponse) -> IncidentState:
    """The state of the offered node. Raises VerificationError for a code that no state can have."""
    try:
        return IncidentState.of_any_code(offer.node_state)
    except ValueError as error:
        raise VerificationError(f"the offer's node_state: {error}") from None


def _offer_bytes(offer: GetOfferResponse) -> bytes:
    """What the provider has signed of an offer."""
    classes = list(offer.class_ids)
    return signed_messages.offer(offer.offer_id, offer.epoch, offer.expires_at, classes, _node_state(offer))


def _signed(served: ServedEpoch, offer: GetOfferResponse) -> dict[str, Any]:
    statement = _offer_bytes(offer)
    return {
        "head": served.body.hex(),
        "head_signature": served.signature.hex(),
        "checkpoint": served.checkpoint.decode(),
        "offer": statement.hex(),
        "offer_signature": offer.signature.hex(),
    }
