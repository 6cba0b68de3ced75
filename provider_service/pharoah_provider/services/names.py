"""`pharoah.v1.Names`, for whoever holds one of the two keys."""

from __future__ import annotations

from pharoah.proto.v1 import (
    EvaluateNameRequest,
    EvaluateNameResponse,
    GetNameKeyRequest,
    GetNameKeyResponse,
)
from pharoah_provider.names import NameKeys
from pharoah_provider.services import Context
from pharoah_provider.services.gate import caller


class NamesServicer:
    def __init__(self, keys: NameKeys) -> None:
        self._keys = keys

    async def GetNameKey(self, _: GetNameKeyRequest, __: Context) -> GetNameKeyResponse:
        period, public, signature = self._keys.current()
        return GetNameKeyResponse(period=period, public_key=public, signature=signature)

    async def EvaluateName(self, request: EvaluateNameRequest, _: Context) -> EvaluateNameResponse:
        evaluated, proof = await self._keys.evaluate(caller(), request.period, request.blinded)
        return EvaluateNameResponse(evaluated=evaluated, proof=proof)
