"""`pharoah.v1.Names`, for whoever holds one of the two keys."""

from __future__ import annotations

from pharoah_protocol.v1 import (
    EvaluateNameRequest,
    EvaluateNameResponse,
    GetNameKeyRequest,
    GetNameKeyResponse,
)
from pharoah_serving import Context
from pharoah_serving.call_guard import caller
from pharoah_serving.pseudonym_keys import PseudonymKeys


class PseudonymServicer:
    def __init__(self, keys: PseudonymKeys) -> None:
        self._keys = keys

    async def GetNameKey(self, _: GetNameKeyRequest, __: Context) -> GetNameKeyResponse:
        period, public, signature = self._keys.current()
        return GetNameKeyResponse(period=period, public_key=public, signature=signature)

    async def EvaluateName(self, request: EvaluateNameRequest, _: Context) -> EvaluateNameResponse:
        evaluated, proof = await self._keys.evaluate(caller(), request.period, request.blinded)
        return EvaluateNameResponse(evaluated=evaluated, proof=proof)
