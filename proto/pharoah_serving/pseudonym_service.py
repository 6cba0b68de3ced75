"""`pharoah.v1.Pseudonyms`, for either holder of a pseudonym key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pharoah_protocol.v1 import (
    EvaluatePseudonymRequest,
    EvaluatePseudonymResponse,
    GetPseudonymKeyRequest,
    GetPseudonymKeyResponse,
)
from pharoah_serving.call_guard import caller
from pharoah_serving.context import Context
from pharoah_serving.pseudonym_keys import PseudonymKeys


class PseudonymServicer:
    """The methods of the service, behind the call guard."""

    def __init__(self, keys: PseudonymKeys, evaluated: Callable[[str, int], Awaitable[None]] | None = None) -> None:
        """`evaluated(organisation, period)` is awaited before a pseudonym is answered, by a holder that counts them."""
        self._keys, self._evaluated = keys, evaluated

    async def GetPseudonymKey(self, _: GetPseudonymKeyRequest, __: Context) -> GetPseudonymKeyResponse:
        period, public, signature = self._keys.current()
        return GetPseudonymKeyResponse(period=period, public_key=public, signature=signature)

    async def EvaluatePseudonym(self, request: EvaluatePseudonymRequest, _: Context) -> EvaluatePseudonymResponse:
        evaluated, proof = await self._keys.evaluate(caller(), request.period, request.blinded)
        if self._evaluated is not None:
            await self._evaluated(caller().organisation, request.period)
        return EvaluatePseudonymResponse(evaluated=evaluated, proof=proof)
