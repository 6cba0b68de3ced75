"""Which calls have a line of their own in the audit log, and what a start counts from it."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah_protocol.v1 import EvaluatePseudonymRequest, EvaluateRequest, GetOfferRequest, GetPseudonymKeyRequest
from pharoah_protocol.vocabulary import Role
from pharoah_protocol.voprf import protocol
from pharoah_serving import recorder
from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.errors import StoreError
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import Limits, Quotas, reduce_for_quotas
from pharoah_serving.recorder import CallRecorder
from tests.harness.exchange import RELEASE, refused
from tests.harness.loopback import Loopback, bearer, loopback, ticket

LAB = Principal(Role.TENANT, "lab/one")
NOW = 1e9


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def flags(folder: Path) -> list[tuple[str, bool]]:
    """Method of each line, and whether the call used a quota."""
    return [(line["method"], line["quota"]) for line in lines(folder)]


async def question(site: Loopback) -> EvaluateRequest:
    """A question under a new offer, which was asked once."""
    offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
    blinded = [protocol.filler() for _ in range(64)]
    request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=blinded)
    await site.call("Exchange", "Evaluate", request)
    return request


async def pseudonym(site: Loopback, *, over: bool = False) -> grpc.StatusCode:
    """The status of a query for a pseudonym, of a period that is over or of the current one."""
    period = 0 if over else (await site.call("Pseudonyms", "GetPseudonymKey", GetPseudonymKeyRequest())).period
    request = EvaluatePseudonymRequest(period=period, blinded=protocol.blind(b"job").element)
    return await status(site.call("Pseudonyms", "EvaluatePseudonym", request))


async def garbage(site: Loopback) -> grpc.StatusCode:
    """The status of a result that cannot even be parsed."""
    call = site.channel.unary_unary("/pharoah.v1.Runs/SendProbeResult")
    return await status(call(b"\xff" * 50, timeout=5, metadata=bearer("acme")))


async def status(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_calls_that_use_no_quota_share_the_lines_of_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are answered, and although other calls of the same method use one."""
    monkeypatch.setattr(recorder, "LINES_OF_A_CALLER", 5)

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            request = await question(site)
            for _ in range(6):
                assert await pseudonym(site, over=True) is grpc.StatusCode.NOT_FOUND
                assert await garbage(site) is grpc.StatusCode.INVALID_ARGUMENT
                await site.call("Exchange", "Evaluate", request)
            assert flags(tmp_path / "audit") == [
                ("GetOffer", True), ("Evaluate", True),
                ("EvaluatePseudonym", False), ("SendProbeResult", False), ("Evaluate", False),
            ]  # fmt: skip
            await question(site)
            assert flags(tmp_path / "audit")[5:] == [("GetOffer", True), ("Evaluate", True)], (
                "beyond the number as well"
            )

    asyncio.run(inside())
    counted = {(line["method"], line["calls"]) for line in lines(tmp_path / "audit")[7:]}
    assert counted == {("EvaluatePseudonym", 5), ("SendProbeResult", 5), ("Evaluate", 5)}


def test_a_restart_counts_what_was_used_and_nothing_else(tmp_path: Path) -> None:
    limits = Limits(tenant_queries=2, organisation_pseudonyms=2, organisation_rejected_results=1)

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE, limits=limits) as site:
            request = await question(site)
            for _ in range(5):
                await site.call("Exchange", "Evaluate", request)
                assert await pseudonym(site, over=True) is grpc.StatusCode.NOT_FOUND
                assert await garbage(site) is grpc.StatusCode.INVALID_ARGUMENT
            assert await pseudonym(site) is grpc.StatusCode.OK
        async with loopback(tmp_path, limits=limits) as site:
            assert await pseudonym(site) is grpc.StatusCode.OK
            assert await pseudonym(site) is grpc.StatusCode.RESOURCE_EXHAUSTED
            await question(site)
            assert (await refused(question(site)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(inside())


def test_a_start_keeps_few_records_of_many_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(500):
        used = AuditRecord("tenant", LAB.name, "Evaluate", f"{number:032x}", 2048 + number, 9, "OK", quota=True)
        log.record(NOW, used)
        log.record(NOW, AuditRecord("tenant", LAB.name, "EvaluatePseudonym", status="NOT_FOUND", quota=False))
    log.close()
    (kept,) = AuditLog(tmp_path, reduce_for_quotas).today(NOW)
    assert (kept.method, kept.calls) == ("Evaluate", 500)


def test_a_use_whose_line_cannot_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a disk that was full for a moment would give new questions after a restart."""
    log = AuditLog(tmp_path)
    calls = CallRecorder(log, lambda: NOW)
    offer = AuditRecord("tenant", LAB.name, "GetOffer", status="OK", quota=True)
    with monkeypatch.context() as full:
        full.setattr("os.write", lambda *_: 0)
        with pytest.raises(StoreError):
            calls.record(offer, LAB, "ipv4:10.0.0.1:1")
        calls.record(AuditRecord("tenant", LAB.name, "Evaluate", status="OK", quota=False), LAB, "ipv4:10.0.0.1:1")
        calls.flush()
    assert lines(tmp_path) == []
    calls.flush()
    log.close()
    quotas, again = Quotas(Limits(tenant_offers=1)), AuditLog(tmp_path, reduce_for_quotas)
    quotas.recount(again.today(NOW), NOW)
    with pytest.raises(Exception, match="1 offers are used up"):
        quotas.take_offer(LAB, NOW)
