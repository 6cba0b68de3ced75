"""The tenant's side of the exchange: finds the verdict rows that a job opens on the offered node.

In private mode what the provider sees is the same for every job, at the same times: one offer, 64 blinded elements, and
half a second after its answer one bit. Everything an answer holds is checked, and all of it opened, before any of it is
used.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar import exchange_answers
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.exchange_answers import SCOPES, Answer, Match
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import LogClient, ServedEpoch, VerificationError, read_witnesses
from pharoah.sidecar.message_times import DECIDE_SECONDS, MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah.sidecar.question import Question, prepare
from pharoah.sidecar.table_cache import TableCache
from pharoah_archetypes import Fingerprint
from pharoah_protocol.log.view import View
from pharoah_protocol.node_ticket import Ticket, TicketError
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.query import BlindedQuery, compute_keyed_hashes
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

T = TypeVar("T")

LOG_PAGES_LIMIT = 64
AUDITED_INPUTS = 8
"""One of so many answers of the hashed mode is asked for again privately."""


class Offered(NamedTuple):
    """An offer, and the epoch that it belongs to."""

    served: ServedEpoch
    offer: GetOfferResponse


class ExchangeClient:
    """Asks one provider. Keeps what it has read of the log, and tables of the current epoch."""

    def __init__(
        self,
        provider: ProviderConnection,
        settings: Settings,
        message_times: MessageTimes | None = None,
        *,
        remember: bool = True,
    ) -> None:
        """Without `remember` it knows nothing of earlier launches and leaves nothing to later ones."""
        self._provider, self._hashed = provider, settings.privacy == Privacy.HASHED
        self._folder = exchange_folder(settings) if remember else None
        self._witnesses_file = settings.witnesses_file
        self._stub = Stub(provider.channel, "Exchange")
        self._files = FileWork(settings.timeout_seconds)
        self._trust: LogClient | None = None
        """None before it is first read."""
        self.times = message_times or MessageTimes()
        self._tables = TableCache(provider, self._folder, self._files)
        self._offer_id = b""

    async def ask(self, fingerprint: Fingerprint, ticket: NodeTicket, name: Pseudonym | None = None) -> Answer:
        """All rows this fingerprint, and its pseudonym, open for the ticket's node.

        Raises UnknownReason and VerificationError.
        """
        try:
            question = prepare(fingerprint)
        except ValueError as error:
            raise UnknownReason(f"the fingerprint has no skeleton: {error}") from None
        self.times.begin()
        return await self.answer(question.with_pseudonym(name) if name else question, ticket)

    async def answer(self, question: Question, ticket: NodeTicket) -> Answer:
        """The answer to a question that is ready, on the node of a ticket. Raises UnknownReason and
        VerificationError."""
        try:
            question = question.on_node(Ticket.read(ticket.body).node)
        except TicketError as error:
            raise UnknownReason(f"the agent's {error}") from None
        try:
            if not self._hashed:
                return await self._privately(question.batch, ticket)
            answer = await self._by_hashes(question.batch, ticket)
            if secrets.randbelow(AUDITED_INPUTS):
                return answer
            try:
                await self._audit(question.batch, ticket, answer)
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
        """The epoch in force, from a log that was read on. Raises UnknownReason, VerificationError and AioRpcError."""
        trust = await self._remember()
        await self.times.turn()
        return await self._epoch(trust)

    @property
    def remembers(self) -> bool:
        """Whether what is read of the log is remembered on this machine."""
        return self._trust is not None and self._trust.remembers

    @property
    def log(self) -> View:
        """The provider's log as far as it was read."""
        return self._trust.view if self._trust else View()

    async def decide(self, accept: bool) -> None:
        """Whether the offered node is taken: one bit, no reason. A provider that cannot be reached does not matter."""
        if self._offer_id:
            await self.times.turn(DECIDE_SECONDS)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._send("Decide", DecideRequest(offer_id=self._offer_id, accept=accept))

    async def _remember(self) -> LogClient:
        """The provider's log as this user has seen it. Raises UnknownReason when what is remembered cannot be read."""

        def read() -> LogClient:
            return self._trust or LogClient(self._provider.key, read_witnesses(self._witnesses_file), self._folder)

        self._trust = await self._on_files(read)
        return self._trust

    async def _on_files(self, work: Callable[[], T]) -> T:
        """Raises UnknownReason when this user's files do not answer."""
        try:
            return await self._files.result(work)
        except TimeoutError:
            where = self._folder or self._witnesses_file
            raise UnknownReason(f"{where}: the file system does not answer within {self._files.seconds:g} s") from None

    async def _epoch(self, trust: LogClient) -> ServedEpoch:
        """The same, for a first message whose time has come."""
        for _ in range(LOG_PAGES_LIMIT):
            answer = await self._send("GetEpoch", GetEpochRequest(log_size=trust.size))
            if trust.follow(list(answer.entries), answer.checkpoint):
                shown = answer.head.body, answer.head.signature, answer.revoked
                return await self._on_files(partial(trust.verify, *shown, time.time()))
            await self.times.turn()
        raise VerificationError(f"the provider's log does not end after {LOG_PAGES_LIMIT} pages")

    async def _privately(self, batch: BlindedQuery, ticket: NodeTicket) -> Answer:
        served, offer = await self._offer(ticket)
        tables = [await self._tables.rows(served, class_id, self.times) for class_id in offer.class_ids]
        request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=batch.blinded)
        response = await self._call("Evaluate", request)
        record = exchange_answers.evaluation_record(served, offer, request, response, batch, self._provider.key)
        matches: list[Match] = []
        for scope, class_id, table, answer in zip(SCOPES, offer.class_ids, tables, response.classes, strict=True):
            outputs = batch.outputs(answer.evaluated)
            matches += exchange_answers.open_rows(served, scope, class_id, table, batch, outputs)
        record["private"]["rows"] = [match.row.pack().hex() for match in matches]
        return Answer(served, tuple(matches), request.ByteSize(), record, exchange_answers.node_state(offer))

    async def _by_hashes(self, batch: BlindedQuery, ticket: NodeTicket) -> Answer:
        served, offer = await self._offer(ticket)
        tokens = compute_keyed_hashes(batch.inputs, offer.hashed_key)
        request = LookupRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), tokens=tokens)
        response = await self._call("Lookup", request)
        record = exchange_answers.lookup_record(served, offer, request, response, self._provider.key)
        if signed_messages.digest(served.revoked_list) != response.revoked:
            served = await self._again(served, response.revoked)
        matches = exchange_answers.look_up(batch.inputs, response)
        return Answer(served, tuple(matches), request.ByteSize(), record, exchange_answers.node_state(offer))

    async def _again(self, before: ServedEpoch, in_force: bytes) -> ServedEpoch:
        """The epoch once more, when a row was revoked while we asked. Raises UnknownReason and VerificationError."""
        served = await self.epoch()
        if served.head.epoch != before.head.epoch:
            raise UnknownReason("the provider's epoch changed in between")
        if signed_messages.digest(served.revoked_list) != in_force:
            raise VerificationError("the provider's answer is of another list of revoked rows than the one in its log")
        return served

    async def _offer(self, ticket: NodeTicket) -> Offered:
        """An offer in the epoch in force; once more when the epoch has changed in between."""
        for _ in range(2):
            trust = await self._remember()
            await self.times.turn()  # one for both, so that they leave in this order
            request = GetOfferRequest(ticket=ticket)
            served, offer = await asyncio.gather(self._epoch(trust), self._send("GetOffer", request))
            if offer.epoch == served.head.epoch:
                break
        exchange_answers.check_offer(served, offer, self._provider.key)
        self._offer_id = offer.offer_id
        return Offered(served, offer)

    async def _audit(self, batch: BlindedQuery, ticket: NodeTicket, hashed: Answer) -> None:
        """Ask the same again, privately. Raises VerificationError when the sealed table holds another answer."""
        for _ in range(2):
            private = await self._privately(batch, ticket)
            same = (hashed.served.body, hashed.served.revoked) == (private.served.body, private.served.revoked)
            if same and set(hashed.matches) == set(private.matches):
                return
            if same:
                classes = [bytes.fromhex(part) for part in private.record["classes"]]
                rows = {name: await self._tables.rows(private.served, name, self.times) for name in classes}
                raise VerificationError(
                    "the provider's hashed answer is not what its sealed table holds",
                    {
                        "kind": "hashed answer",
                        "hashed": hashed.record,
                        "evaluation": private.record,
                        "tables": {name.hex(): b"".join(table).hex() for name, table in rows.items()},
                        "revoked": private.served.revoked_list.hex(),
                    },
                )
            hashed = await self._by_hashes(batch, ticket)  # something was published in between

    async def _call(self, method: str, request: Any) -> Any:
        """One message at its time, and the answer to it."""
        await self.times.turn()
        return await self._send(method, request)

    async def _send(self, method: str, request: Any) -> Any:
        try:
            return await self._provider.call(getattr(self._stub, method), request)
        finally:  # also when it fails or is given up
            self.times.note_answer()
