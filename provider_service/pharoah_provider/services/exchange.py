"""`pharoah.v1.Exchange`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pharoah.proto.v1 import (
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
    SignedHead,
)
from pharoah_provider.exchange import BATCH, Exchange
from pharoah_provider.services import Context
from pharoah_provider.services.auth import Gatekeeper


class ExchangeServicer:
    def __init__(self, exchange: Exchange, gatekeeper: Gatekeeper) -> None:
        self._exchange, self._gatekeeper = exchange, gatekeeper

    async def GetEpoch(self, _: GetEpochRequest, __: Context) -> GetEpochResponse:
        epoch = self._exchange.epoch()
        return GetEpochResponse(head=SignedHead(body=epoch.body, signature=epoch.signature))

    async def GetOffer(self, request: GetOfferRequest, context: Context) -> GetOfferResponse:
        tenant = self._gatekeeper.name(context)
        offer_id, offer = await self._exchange.offer(tenant, request.ticket.body, request.ticket.signature)
        return GetOfferResponse(
            offer_id=offer_id,
            class_ids=offer.class_ids,
            evaluations=BATCH * len(offer.class_ids),
            expires_at=offer.expires_at,
            context=offer.node.server_facts,
        )

    async def GetTable(self, request: GetTableRequest, _: Context) -> AsyncIterator[GetTableResponse]:
        for chunk in self._exchange.table(request.epoch, request.class_id):
            yield GetTableResponse(rows=chunk)

    async def Evaluate(self, request: EvaluateRequest, context: Context) -> EvaluateResponse:
        evaluated = await self._exchange.evaluate(
            self._gatekeeper.name(context),
            request.offer_id,
            request.request_id,
            request.epoch,
            request.class_id,
            tuple(request.blinded),
        )
        return EvaluateResponse(evaluated=evaluated)

    async def Decide(self, request: DecideRequest, context: Context) -> DecideResponse:
        self._exchange.offer_of(self._gatekeeper.name(context), request.offer_id)
        return DecideResponse()
