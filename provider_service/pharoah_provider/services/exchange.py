"""`pharoah.v1.Exchange`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pharoah_protocol.v1 import (
    ClassEvaluation,
    DecideRequest,
    DecideResponse,
    EvaluateRequest,
    EvaluateResponse,
    GetEpochRequest,
    GetEpochResponse,
    GetOfferRequest,
    GetOfferResponse,
    GetTableRequest,
    GetTableResponse,
    IncidentState,
    LookupRequest,
    LookupResponse,
    SignedHead,
)
from pharoah_provider.exchange_server import ExchangeServer
from pharoah_serving.call_guard import caller
from pharoah_serving.context import Context


class ExchangeServicer:
    """Decodes the calls of the exchange and encodes its answers."""

    def __init__(self, exchange: ExchangeServer) -> None:
        self._exchange = exchange

    async def GetEpoch(self, request: GetEpochRequest, _: Context) -> GetEpochResponse:
        publisher = self._exchange.publisher
        epoch = publisher.epoch()
        return GetEpochResponse(
            head=SignedHead(body=epoch.body, signature=epoch.signature),
            entries=publisher.log.entries(request.log_size),
            checkpoint=publisher.log.checkpoint,
            revoked=publisher.list_revoked(),
        )

    async def GetOffer(self, request: GetOfferRequest, _: Context) -> GetOfferResponse:
        offer_id, offer = await self._exchange.offer(caller(), request.ticket.body, request.ticket.signature)
        return GetOfferResponse(
            offer_id=offer_id,
            class_ids=offer.class_ids,
            expires_at=offer.expires_at,
            context=offer.context,
            epoch=offer.epoch,
            signature=offer.signature,
            hashed_key=self._exchange.hash_key(caller(), offer.epoch),
            node_state=IncidentState.ValueType(offer.node_state.code),
        )

    async def GetTable(self, request: GetTableRequest, _: Context) -> AsyncIterator[GetTableResponse]:
        chunks, signature = self._exchange.table(request.epoch, request.class_id, request.first_row)
        yield GetTableResponse(signature=signature)
        for chunk in chunks:
            yield GetTableResponse(rows=chunk)

    async def Evaluate(self, request: EvaluateRequest, _: Context) -> EvaluateResponse:
        classes, signature = await self._exchange.evaluate(
            caller(), request.offer_id, request.request_id, list(request.blinded)
        )
        answers = [ClassEvaluation(evaluated=evaluated, proof=proof) for evaluated, proof in classes]
        return EvaluateResponse(classes=answers, signature=signature)

    async def Lookup(self, request: LookupRequest, _: Context) -> LookupResponse:
        rows, revoked, signature = await self._exchange.lookup(
            caller(), request.offer_id, request.request_id, list(request.tokens)
        )
        return LookupResponse(rows=rows, revoked=revoked, signature=signature)

    async def Decide(self, request: DecideRequest, _: Context) -> DecideResponse:
        self._exchange.offer_of(caller(), request.offer_id)
        return DecideResponse()
