"""Asking for a job's name: the provider and the auditor each evaluate one blinded element."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import replace
from typing import Any

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah_protocol import pseudonyms
from pharoah_protocol.channels import ServerRole
from pharoah_protocol.log.view import View
from pharoah_protocol.pseudonyms import EvaluatedPseudonym, PseudonymQuery
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import is_signed
from pharoah_protocol.v1 import EvaluatePseudonymRequest, GetPseudonymKeyRequest


class PseudonymClient:
    """Two key holders, one name. Both must be reached; neither learns what it is asked about."""

    def __init__(
        self, provider: ProviderConnection, settings: Settings, message_times: MessageTimes | None = None
    ) -> None:
        """Raises UnknownReason when the auditor is not set up."""
        if not settings.auditor_endpoint or not settings.auditor_key_file:
            missing = "PHAROAH_AUDITOR_KEY_FILE" if settings.auditor_endpoint else "PHAROAH_AUDITOR_ENDPOINT"
            raise UnknownReason(f"outcomes are shared under a name, which takes an auditor: set {missing}")
        # A token for both would let each of them pose as this tenant at the other.
        away = replace(
            settings,
            endpoint=settings.auditor_endpoint,
            provider_key_file=settings.auditor_key_file,
            token_file=settings.auditor_token_file,
        )
        self._holders = (provider, ProviderConnection(away, ServerRole.AUDITOR))
        self._times = message_times or MessageTimes()

    async def name(self, question: PseudonymQuery, log: View) -> pseudonyms.Pseudonym:
        """The pseudonym of the job that the question is about. Raises UnknownReason."""
        try:
            keys = await asyncio.gather(*(self._key(holder) for holder in self._holders))
            period, public = keys[0]
            if len({period for period, _ in keys}) > 1 or abs(period - pseudonyms.period_at(time.time())) > 1:
                raise UnknownReason("provider and auditor are not in the same period of names; are the clocks right?")
            if log.pseudonym_keys.get(period) != hashlib.sha256(public).digest():
                raise UnknownReason("the provider's key of names is not the one in its log")
            answers = await asyncio.gather(*(self._evaluate(h, period, question.blinded) for h in self._holders))
            value = question.pseudonym([public for _, public in keys], answers)
            return pseudonyms.Pseudonym(period=period, value=value)
        except grpc.aio.AioRpcError as error:
            raise UnknownReason(f"the job has no pseudonym: {reason(error)}") from None
        except ValueError as error:  # a proof, a group element, a part of any length
            raise UnknownReason(f"the job has no pseudonym: {error}") from None

    async def period(self) -> int:
        """Which period both holders are in. Raises UnknownReason."""
        try:
            keys = await asyncio.gather(*(self._key(holder) for holder in self._holders))
        except grpc.aio.AioRpcError as error:
            raise UnknownReason(reason(error)) from None
        return keys[0][0]

    async def close(self) -> None:
        await self._holders[1].channel.close(None)

    async def _key(self, holder: ProviderConnection) -> tuple[int, bytes]:
        answer = await self._call(holder, "GetPseudonymKey", GetPseudonymKeyRequest())
        statement, key = signed_messages.pseudonym_key(answer.period, answer.public_key), holder.key
        if not isinstance(key, Ed25519PublicKey) or not is_signed(statement, answer.signature, key):
            raise UnknownReason("a key of names is not signed by who should hold it")
        return answer.period, answer.public_key

    async def _evaluate(self, holder: ProviderConnection, period: int, blinded: bytes) -> EvaluatedPseudonym:
        answer = await self._call(holder, "EvaluatePseudonym", EvaluatePseudonymRequest(period=period, blinded=blinded))
        return EvaluatedPseudonym(element=answer.evaluated, proof=answer.proof)

    async def _call(self, holder: ProviderConnection, method: str, request: Any) -> Any:
        await self._times.turn()
        try:
            return await holder.call(getattr(Stub(holder.channel, "Pseudonyms"), method), request)
        finally:
            self._times.note_answer()
