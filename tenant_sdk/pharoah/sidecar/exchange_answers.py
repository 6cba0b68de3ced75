"""What the provider answers in the exchange: checked against its signatures and proofs, and opened. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah.sidecar.log_client import ServedEpoch, VerificationError
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import is_signed
from pharoah_protocol.tables.query import BATCH_ITEMS, BlindedQuery, QueryItem
from pharoah_protocol.tables.rows import VerdictRow, open_row, readable, row_tag
from pharoah_protocol.tables.signed_messages import ClassAnswer
from pharoah_protocol.v1 import (
    EvaluateRequest,
    EvaluateResponse,
    GetOfferResponse,
    LookupRequest,
    LookupResponse,
)
from pharoah_protocol.voprf import protocol

SCOPES = ("server", "device")
"""What the two classes of an offer describe: this server configuration, this device model."""


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


def check_offer(served: ServedEpoch, offer: GetOfferResponse, key: Ed25519PublicKey) -> None:
    """Raises VerificationError unless this is a signed offer of two classes in the epoch in force."""
    if not is_signed(_offer_bytes(offer), offer.signature, key) or len(offer.class_ids) != len(SCOPES):
        raise VerificationError("the offer is not signed, or does not name the two classes it should")
    if offer.epoch != served.head.epoch:
        raise VerificationError("the offer is of another epoch than the one in force")


def evaluation_record(
    served: ServedEpoch,
    offer: GetOfferResponse,
    request: EvaluateRequest,
    response: EvaluateResponse,
    batch: BlindedQuery,
    key: Ed25519PublicKey,
) -> dict[str, Any]:
    """The signed record of an evaluation whose proofs hold. Raises VerificationError."""
    blinded = list(batch.blinded)
    answers = [
        ClassAnswer(class_id=class_id, elements=list(answer.evaluated), proof=answer.proof)
        for class_id, answer in zip(offer.class_ids, response.classes, strict=False)
    ]
    statement = signed_messages.evaluation(offer.offer_id, request.request_id, blinded, answers)
    if len(response.classes) != len(SCOPES) or not is_signed(statement, response.signature, key):
        raise VerificationError("the provider's answer is not signed, or not one to this question")
    record = {**_collect_signed(served, offer), "evaluation": statement.hex(), "signature": response.signature.hex()}
    try:
        _verify_proofs(served, blinded, answers)
    except protocol.ProofError as error:
        raise VerificationError(str(error), {"kind": "evaluation", **record}) from None
    private = {
        "inputs": [asked.value.hex() for asked in batch.inputs],
        "blinds": [scalar.hex() for scalar in batch.scalars],
    }
    return {**record, "classes": [class_id.hex() for class_id in offer.class_ids], "private": private}


def _verify_proofs(served: ServedEpoch, blinded: list[bytes], answers: list[ClassAnswer]) -> None:
    """Raises ProofError when one of them does not hold. Each has a thread: libsodium computes without Python's lock."""

    def verify(answer: ClassAnswer) -> None:
        protocol.verify(served.head.table(answer.class_id).public_key, blinded, answer.elements, answer.proof)

    # A thread has a context of its own, which would not know which group is in use (`group.using`).
    contexts = [copy_context() for _ in answers]
    with ThreadPoolExecutor(len(answers)) as threads:
        list(threads.map(lambda context, answer: context.run(verify, answer), contexts, answers))


def open_rows(
    served: ServedEpoch, scope: str, class_id: bytes, table: Sequence[bytes], batch: BlindedQuery, outputs: list[bytes]
) -> list[Match]:
    """The rows of one table that the outputs open. Every question has the same number of outputs."""
    epoch = served.head.epoch
    rows = [
        open_row(table, output, epoch, class_id)
        if class_id + row_tag(output, epoch, class_id) not in served.revoked
        else None
        for output in outputs
    ]
    return [
        Match(asked.kind, asked.rung, scope, row)
        for asked, row in zip(batch.inputs, rows, strict=True)
        if row is not None and (row.rung == asked.rung)
    ]


def lookup_record(
    served: ServedEpoch,
    offer: GetOfferResponse,
    request: LookupRequest,
    response: LookupResponse,
    key: Ed25519PublicKey,
) -> dict[str, Any]:
    """Hashed mode: the signed record of looked-up rows. Raises VerificationError."""
    statement = signed_messages.look_up(
        offer.offer_id,
        request.request_id,
        offer.hashed_key,
        response.revoked,
        list(request.tokens),
        list(response.rows),
    )
    if not is_signed(statement, response.signature, key) or len(response.rows) != len(SCOPES) * BATCH_ITEMS:
        raise VerificationError("the provider's answer is not signed, or not one to this question")
    record = {**_collect_signed(served, offer), "looked_up": statement.hex(), "signature": response.signature.hex()}
    return {**record, "hashed_key": offer.hashed_key.hex()}


def look_up(inputs: Sequence[QueryItem], response: LookupResponse) -> list[Match]:
    """Hashed mode: the rows of an answer, without those that only a later release can read."""
    return [
        Match(asked.kind, asked.rung, scope, row)
        for at, scope in enumerate(SCOPES)
        for number, asked in enumerate(inputs)
        if (row := readable(response.rows[BATCH_ITEMS * at + number])) is not None and row.rung == asked.rung
    ]


def node_state(offer: GetOfferResponse) -> IncidentState:
    """The state of the offered node. Raises VerificationError for a code that no state can have."""
    try:
        return IncidentState.from_any_code(offer.node_state)
    except ValueError as error:
        raise VerificationError(f"the offer's node_state: {error}") from None


def _offer_bytes(offer: GetOfferResponse) -> bytes:
    """What the provider has signed of an offer."""
    classes = list(offer.class_ids)
    return signed_messages.offer(offer.offer_id, offer.epoch, offer.expires_at, classes, node_state(offer))


def _collect_signed(served: ServedEpoch, offer: GetOfferResponse) -> dict[str, Any]:
    return {
        "head": served.body.hex(),
        "head_signature": served.signature.hex(),
        "checkpoint": served.checkpoint.decode(),
        "offer": _offer_bytes(offer).hex(),
        "offer_signature": offer.signature.hex(),
    }
