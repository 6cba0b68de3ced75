"""Everything that ever leaves for the provider or an auditor, and where each field comes from.

The list is closed: a test compares it with the schema, so that no later field leaves unseen. `request_headers` has what
leaves beside the messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pharoah._settings import Settings
from pharoah.sidecar.guest_limits import takes_orders
from pharoah.sidecar.job_identity import job_identity
from pharoah.sidecar.run_reporter import TIME_STEP_DIGITS
from pharoah_archetypes import Fingerprint
from pharoah_protocol import pseudonyms
from pharoah_protocol.guest_probes import KEY_BYTES, RESULT_BYTES
from pharoah_protocol.tables.query import blind, compute_keyed_hashes, inputs_of
from pharoah_protocol.v1 import (
    AskValidationRequest,
    Consent,
    DecideRequest,
    EndRunRequest,
    EndState,
    EvaluatePseudonymRequest,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    GetPseudonymKeyRequest,
    GetTableRequest,
    JoinRunRequest,
    LookupRequest,
    NodeTicket,
    ReportRequest,
    SendProbeResultRequest,
    WatchAlertsRequest,
    WatchOrdersRequest,
)
from pharoah_protocol.vocabulary import Privacy

_OFFER, _CLASS = "from the provider: its offer", "from the provider: its offer's classes"
_RUN, _RANDOM = "random, made for this run", "random, made for this question"
_TICKET = "from the node's agent: which node this is"
ORIGINS = {
    "GetEpochRequest.log_size": "how much of the provider's public log this machine has read",
    "GetOfferRequest.ticket": _TICKET,
    "NodeTicket.body": _TICKET,
    "NodeTicket.signature": _TICKET,
    "GetTableRequest.epoch": "from the provider: its signed head",
    "GetTableRequest.class_id": _CLASS,
    "GetTableRequest.first_row": "how much of this table this machine already has",
    "EvaluateRequest.offer_id": _OFFER,
    "EvaluateRequest.request_id": _RANDOM,
    "EvaluateRequest.blinded": "the job's inputs and fillers, always 64, each times a random number: uniform elements",
    "LookupRequest.offer_id": _OFFER,
    "LookupRequest.request_id": _RANDOM,
    "LookupRequest.tokens": "privacy=hashed only: keyed hashes of the job's inputs; the provider can test guesses",
    "DecideRequest.offer_id": _OFFER,
    "DecideRequest.accept": "one bit: whether the job was started",
    "JoinRunRequest.run_id": _RUN,
    "JoinRunRequest.ticket": _TICKET,
    "JoinRunRequest.ranks": "number of processes on this node",
    "JoinRunRequest.job_id": "jobs on several nodes: hash of the rendezvous, with PHAROAH_JOB_SECRET_FILE",
    "JoinRunRequest.consent": "PHAROAH_ALLOW_BESIDE_JOB",
    "Consent.beside_job": "PHAROAH_ALLOW_BESIDE_JOB",
    "Consent.limit_seconds": "how long one micro-benchmark may take",
    "Consent.probe_key": "PHAROAH_GUEST_PROBE_S only: a public key, random, made for this run",
    "ReportRequest.run_id": _RUN,
    "ReportRequest.dropped": "seconds that could not be kept while the provider was away",
    "ReportRequest.attempt": "from the provider: how often this run has joined",
    "ReportRequest.first_second": "seconds since the launch",
    "ReportRequest.first_ended_at": "this machine's clock, in steps of 0.1 s",
    "ReportRequest.step_levels": "step time against the run's own baseline, in eighths of an octave",
    "ReportRequest.memory_levels": "resident memory against the run's own baseline, in eighths of an octave",
    "ReportRequest.ticket": f"{_TICKET}; every eight minutes, so that only who is there keeps a run",
    "EndRunRequest.run_id": f"{_RUN}; or of an earlier run, whose end the provider has not acknowledged",
    "EndRunRequest.state": "how the run ended",
    "EndRunRequest.attribution": "who or what caused a failure, by a rule on its error, signal or scheduler",
    "EndRunRequest.pseudonym": "PHAROAH_SHARE_OUTCOMES=1 only: a pseudonym that takes two keys to make",
    "EndRunRequest.period": "PHAROAH_SHARE_OUTCOMES=1 only: the week of that pseudonym",
    "WatchAlertsRequest.run_id": _RUN,
    "WatchOrdersRequest.run_id": f"PHAROAH_GUEST_PROBE_S only: {_RUN}",
    "SendProbeResultRequest.run_id": f"PHAROAH_GUEST_PROBE_S only: {_RUN}",
    "SendProbeResultRequest.body": "PHAROAH_GUEST_PROBE_S only: the provider's order, whether it was done, and the "
    "times of its repeats; always 1,024 bytes",
    "SendProbeResultRequest.signature": "PHAROAH_GUEST_PROBE_S only: with the key of this run",
    "AskValidationRequest.run_id": "one bit at a round minute: session.ask_validation(), or PHAROAH_ASK_VALIDATION=1",
    "RevealRequest.run_id": "`pharoah reveal` only: the run that is revealed",
    "RevealRequest.fingerprint": "`pharoah reveal` only: what the run was, in plain words",
    "EvaluatePseudonymRequest.period": "PHAROAH_SHARE_OUTCOMES=1 only: the week",
    "EvaluatePseudonymRequest.blinded": "PHAROAH_SHARE_OUTCOMES=1 only: one input times a random number",
}
"""Message and field to where it comes from, for everything a tenant sends."""


@dataclass(frozen=True)
class Outgoing:
    """One message as it would leave now."""

    call: str
    message: Any

    @property
    def content(self) -> bytes:
        """The exact bytes."""
        return bytes(self.message.SerializeToString())

    @property
    def origins(self) -> dict[str, str]:
        """Every field that is in it, and where it comes from."""
        return {name: ORIGINS[name] for name in _fields(self.message)}


def payload(fingerprint: Fingerprint, settings: Settings, ticket: NodeTicket | None = None) -> list[Outgoing]:
    """All messages of a run, in order, also one that leaves only if it is asked for; what the provider would answer is
    random here."""
    ticket = ticket or NodeTicket(body=b"(none)", signature=os.urandom(64))
    offer_id, class_id, run_id, request_id = (os.urandom(16) for _ in range(4))
    pseudonym = pseudonyms.Pseudonym(period=pseudonyms.period_at(time.time()), value=os.urandom(32))
    batch = blind(inputs_of(fingerprint, pseudonym if settings.share_outcomes else None))
    asked = (
        Outgoing("Exchange/Lookup", LookupRequest(
            offer_id=offer_id, request_id=request_id, tokens=compute_keyed_hashes(batch.inputs, os.urandom(32))
        ))
        if settings.privacy == Privacy.HASHED
        else Outgoing("Exchange/Evaluate", EvaluateRequest(
            offer_id=offer_id, request_id=request_id, blinded=batch.blinded
        ))
    )  # fmt: skip
    guests = takes_orders(settings)
    consent = Consent(
        beside_job=settings.allow_beside_job,
        limit_seconds=settings.probe_limit_seconds,
        probe_key=os.urandom(KEY_BYTES) if guests else b"",
    )
    report = ReportRequest(
        run_id=run_id,
        attempt=1,
        first_ended_at=round(time.time(), TIME_STEP_DIGITS),
        step_levels=[0],
        memory_levels=[0],
        first_second=1,
    )
    renewal = ReportRequest(ticket=ticket)
    renewal.MergeFrom(report)
    named = _names(fingerprint) if settings.share_outcomes else []
    end = EndRunRequest(run_id=run_id, state=EndState.Value("END_STATE_OK"))
    if settings.share_outcomes:
        end.period, end.pseudonym = pseudonyms.period_at(time.time()), os.urandom(32)
    return [
        *named,
        Outgoing("Exchange/GetEpoch", GetEpochRequest(log_size=1)),
        Outgoing("Exchange/GetOffer", GetOfferRequest(ticket=ticket)),
        Outgoing("Exchange/GetTable", GetTableRequest(epoch=1, class_id=class_id, first_row=0)),
        asked,
        Outgoing("Exchange/Decide", DecideRequest(offer_id=offer_id, accept=True)),
        Outgoing(
            "Runs/JoinRun",
            JoinRunRequest(
                run_id=run_id, ticket=ticket, ranks=1, consent=consent, job_id=job_identity(os.environ, settings).job_id
            ),
        ),
        Outgoing("Runs/WatchAlerts", WatchAlertsRequest(run_id=run_id)),
        *(_guest_probes(run_id) if guests else []),
        Outgoing("Runs/Report", report),
        Outgoing("Runs/Report", renewal),
        Outgoing("Runs/AskValidation", AskValidationRequest(run_id=run_id)),
        Outgoing("Runs/EndRun", end),
    ]


def _guest_probes(run_id: bytes) -> list[Outgoing]:
    """The messages of a tenant whose sidecar takes orders; a result for each of them, and always as long."""
    result = SendProbeResultRequest(run_id=run_id, body=bytes(RESULT_BYTES), signature=os.urandom(64))
    return [
        Outgoing("Runs/WatchOrders", WatchOrdersRequest(run_id=run_id)),
        Outgoing("Runs/SendProbeResult", result),
    ]


def _names(fingerprint: Fingerprint) -> list[Outgoing]:
    """Messages to the provider and to the auditor."""
    asked = EvaluatePseudonymRequest(
        period=pseudonyms.period_at(time.time()), blinded=pseudonyms.blind_pseudonym(fingerprint).blinded
    )
    return [
        Outgoing("Pseudonyms/GetPseudonymKey", GetPseudonymKeyRequest()),
        Outgoing("Pseudonyms/EvaluatePseudonym", asked),
    ]


def _fields(message: Any) -> Iterator[str]:
    for field, value in message.ListFields():
        yield f"{message.DESCRIPTOR.name}.{field.name}"
        if field.message_type is not None:
            yield from _fields(value)
