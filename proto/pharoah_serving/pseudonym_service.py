"""`pharoah.v1.Pseudonyms`, for either holder of a pseudonym key."""

from __future__ import annotations

from pharoah_protocol.v1 import (
    EvaluatePseudonymRequest,
    EvaluatePseudonymResponse,
    GetPseudonymKeyRequest,
    GetPseudonymKeyResponse,
)
from pharoah_serving import Context
from pharoah_serving.call_guard import caller
from pharoah_serving.pseudonym_keys import PseudonymKeys


class PseudonymServicer:
    """The methods of the service, behind the call guard."""

    def __init__(self, keys: PseudonymKeys) -> None:
        self._keys = keys

    async def GetPseudonymKey(self, _: GetPseudonymKeyRequest, __: Context) -> GetPseudonymKeyResponse:
        period, public, signature = self._keys.current()
        return GetPseudonymKeyResponse(period=period, public_key=public, signature=signature)

    async def EvaluatePseudonym(self, request: EvaluatePseudonymRequest, _: Context) -> EvaluatePseudonymResponse:
        evaluated, proof = await self._keys.evaluate(caller(), request.period, request.blinded)
        return EvaluatePseudonymResponse(evaluated=evaluated, proof=proof)
