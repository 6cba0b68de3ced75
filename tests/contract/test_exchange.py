"""SDK and provider over real gRPC: the private exchange, up, down, slow, rejecting and answering garbage."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import EvaluateRequest, GetOfferRequest, GetTableRequest, LearnRequest, NodeTicket
from pharoah_protocol.voprf import group, libsodium, protocol
from pharoah_serving.quotas import Limits
from tests.harness.exchange import OTHER, RELEASE, ask, on_loopback, refused
from tests.harness.loopback import Loopback, bearer, loopback, ticket
from tests.harness.tokens import write_token


def test_a_planted_row_becomes_a_verdict_and_another_job_learns_nothing(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        known, other = await ask(site.settings()), await ask(site.settings(), OTHER)
        assert verdict_from_rows(known, "").status == "incompatible"
        assert verdict_from_rows(other, "").status == "unknown"
        assert known.bytes_sent == other.bytes_sent, "the size of what is sent must not depend on the job"

    on_loopback(tmp_path, work)


def test_proofs_are_checked_with_the_group_that_is_in_use(tmp_path: Path) -> None:
    """Also in the threads that check them."""
    asked: set[str] = set()

    class Noting:
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return getattr(libsodium, name)

    async def work(site: Loopback) -> None:
        with group.using(Noting()):
            assert (await ask(site.settings())).matches
        assert {"compute_weighted_sum", "multiply"} <= asked

    on_loopback(tmp_path, work)


def test_answers_signed_by_another_key_are_rejected(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        forged = tmp_path / "forged.pub"
        forged.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
        with pytest.raises(VerificationError, match="not signed"):
            await ask(site.settings(provider_key_file=str(forged)))

    on_loopback(tmp_path, work)


def test_before_the_first_release_the_reason_is_said(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        with pytest.raises(UnknownReason, match="nothing has been released"):
            await ask(site.settings())

    on_loopback(tmp_path, work, release=None)


def test_an_unknown_token_is_said(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        wrong = tmp_path / "wrong.token"
        write_token(wrong, f"tenant acme {'x' * 32}")
        with pytest.raises(UnknownReason, match="does not know this tenant"):
            await ask(site.settings(token_file=str(wrong)))

    on_loopback(tmp_path, work)


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("absent", "reached"), ("silent", "in time"), ("garbage", "reached|answer")]
)
def test_a_provider_that_is_absent_silent_or_malicious_gives_a_reason_in_time(
    tmp_path: Path, behaviour: str, reason: str
) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if behaviour == "garbage":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
            writer.close()
        else:
            await reader.read()

    async def inside() -> float:
        server = await asyncio.start_unix_server(handle, tmp_path / "p.sock")
        if behaviour == "absent":
            server.close()
        key = tmp_path / "key"
        key.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
        settings = Settings(
            endpoint=f"unix:{tmp_path}/p.sock",
            provider_key_file=str(key),
            timeout_seconds=1.0,
            state_folder=str(tmp_path),
        )
        began = time.monotonic()
        with pytest.raises(UnknownReason, match=reason):
            await ask(settings)
        elapsed = time.monotonic() - began
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return elapsed

    assert asyncio.run(inside()) < 3.0


@pytest.mark.parametrize("endpoint", ["provider.example:7443", "127.0.0.1:7443", "[::1]:7443", "unix-abstract:pharoah"])
def test_a_token_goes_to_a_unix_socket_only(tmp_path: Path, endpoint: str) -> None:
    key = tmp_path / "key"
    key.write_text("00" * 32)
    with pytest.raises(UnknownReason, match="Unix socket"):
        ProviderConnection(Settings(endpoint=endpoint, provider_key_file=str(key)))


def test_an_offer_is_good_for_one_question_of_its_tenant(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        elements = [protocol.blind(secrets.token_bytes(8))[1] for _ in range(64)]

        def request(**changes: object) -> EvaluateRequest:
            good = {"offer_id": offer.offer_id, "request_id": b"r" * 16, "blinded": elements}
            return EvaluateRequest(**{**good, **changes})

        async def status(who: str = "acme", **changes: object) -> tuple[grpc.StatusCode, str]:
            return await refused(site.call("Exchange", "Evaluate", request(**changes), who))

        assert (await status(who="rival"))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert (await status(offer_id=b"x" * 16))[0] is grpc.StatusCode.PERMISSION_DENIED
        wrong = {"blinded": elements[:3]}, {"request_id": b""}, {"blinded": [*elements[:63], b"short"]}
        for changes in wrong:
            code, message = await status(**changes)
            assert code is grpc.StatusCode.INVALID_ARGUMENT and next(iter(changes)) in message
        both = await asyncio.gather(*(site.call("Exchange", "Evaluate", request()) for _ in range(2)))
        assert both[0] == both[1] == await site.call("Exchange", "Evaluate", request()), "a repeat costs nothing"
        for changes in ({"request_id": b"q" * 16}, {"blinded": elements[::-1]}):
            assert (await status(**changes))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

        another = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        code, message = await status(offer_id=another.offer_id, blinded=[bytes(32)] * 64)
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "blinded" in message

    on_loopback(tmp_path, work)


def test_questions_of_a_day_are_counted_by_tenant_and_organisation_also_over_a_restart(tmp_path: Path) -> None:
    limits = Limits(tenant_queries=2, organisation_queries=3, tenant_offers=50)

    async def question(site: Loopback, who: str) -> grpc.StatusCode:
        offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()), who)
        elements = [protocol.filler() for _ in range(64)]
        request = EvaluateRequest(offer_id=offer.offer_id, request_id=bytes(16), blinded=elements)
        try:
            await site.call("Exchange", "Evaluate", request, who)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE, limits=limits) as site:
            got = [await question(site, who) for who in ("one", "one", "one", "two")]
            assert got == [grpc.StatusCode.OK] * 2 + [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK]
        async with loopback(tmp_path, limits=limits) as site:
            assert await question(site, "two") is grpc.StatusCode.RESOURCE_EXHAUSTED, "three of its organisation"
            assert await question(site, "acme") is grpc.StatusCode.OK

    asyncio.run(inside())


def test_forged_expired_and_foreign_tickets_get_one_answer(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        good = ticket()
        bad = [
            NodeTicket(body=good.body, signature=bytes(64)),
            NodeTicket(body=good.body.replace(b"n1", b"n2"), signature=good.signature),
            NodeTicket(body=b"{", signature=good.signature),
            ticket(now=time.time() - 3600),
        ]
        answers = {await refused(site.call("Exchange", "GetOffer", GetOfferRequest(ticket=t))) for t in bad}
        assert answers == {(grpc.StatusCode.PERMISSION_DENIED, "the node ticket is not valid")}

    on_loopback(tmp_path, work)


def test_roles_do_not_reach_each_others_methods(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        call = Stub(site.channel, "Operator").Learn(LearnRequest(), metadata=bearer("acme"), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        code, _ = await refused(site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()), "ops"))
        assert code is grpc.StatusCode.PERMISSION_DENIED

    on_loopback(tmp_path, work)


def test_oversized_messages_and_unknown_tables_are_refused(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        huge = EvaluateRequest(blinded=[bytes(32)] * 100_000)
        assert (await refused(site.call("Exchange", "Evaluate", huge)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = Stub(site.channel, "Exchange").GetTable(
            GetTableRequest(epoch=1, class_id=b"?" * 16), metadata=bearer("acme"), timeout=5
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    on_loopback(tmp_path, work)
