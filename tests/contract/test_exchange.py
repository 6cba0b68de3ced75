"""SDK and provider over real gRPC: the private exchange, up, down, slow, rejecting and answering garbage."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.courier.exchange import Answer, PrivateExchange
from pharoah.courier.judge import judge
from pharoah.courier.rpc import Provider
from pharoah.exchange import voprf
from pharoah.proto.v1 import EvaluateRequest, GetOfferRequest, GetTableRequest, LearnRequest, NodeTicket
from pharoah.rpc import Stub
from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_provider.domain import LearnedRow, Release
from pharoah_provider.errors import Unknown
from pharoah_provider.exchange import Exchange
from pharoah_provider.keys import KeyFolder
from pharoah_provider.store import Database, Store
from tests.contract.loopback import Loopback, bearer, loopback, node, ticket

KNOWN = Fingerprint(
    "ab" * 16, "12" * 16, "fwd: gemm", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
)
OTHER = Fingerprint(
    "cd" * 16, "34" * 16, "fwd: conv", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
)
ROW = LearnedRow(
    "server",
    node("n1").context_id,
    "exact",
    rung_tokens(KNOWN, "exact"),
    "block",
    "memory",
    5,
    5,
    0,
    25,
    1,
    1,
)
RELEASE = Release(1, (ROW,))


def on_loopback(folder: Path, work: Callable[[Loopback], Awaitable[None]], release: Release | None = RELEASE) -> None:
    async def inside() -> None:
        async with loopback(folder, release) as site:
            await work(site)

    asyncio.run(inside())


async def ask(settings: Settings, fingerprint: Fingerprint = KNOWN) -> Answer:
    provider = Provider(settings)
    try:
        return await PrivateExchange(provider).ask(fingerprint, ticket())
    finally:
        await provider.channel.close()


def test_a_planted_row_becomes_a_verdict_and_another_job_learns_nothing(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        known, other = await ask(site.settings()), await ask(site.settings(), OTHER)
        assert judge(known, "").status == "incompatible"
        assert judge(other, "").status == "unknown"
        assert known.bytes_sent == other.bytes_sent, "the size of what is sent must not depend on the job"

    on_loopback(tmp_path, work)


def test_answers_signed_by_somebody_else_are_not_believed(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        forged = tmp_path / "forged.pub"
        forged.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
        with pytest.raises(UnknownReason, match="cannot be trusted"):
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
        wrong.write_text("x" * 20)
        with pytest.raises(UnknownReason, match="does not know this tenant"):
            await ask(site.settings(token_file=str(wrong)))

    on_loopback(tmp_path, work)


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("absent", "reached"), ("silent", "in time"), ("garbage", "reached|answer")]
)
def test_a_provider_that_is_not_there_silent_or_mad_is_a_reason_in_time(
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
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if behaviour == "absent":
            server.close()
        key = tmp_path / "key"
        key.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
        settings = Settings(endpoint=f"127.0.0.1:{port}", provider_key_file=str(key), timeout_seconds=1.0)
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


def test_a_token_never_travels_in_plain_text_beyond_loopback(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("00" * 32)
    with pytest.raises(UnknownReason, match="loopback"):
        Provider(Settings(endpoint="provider.example:7443", provider_key_file=str(key)))


async def refused(awaitable: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code(), caught.value.details() or ""


def test_evaluations_are_counted_checked_and_bound_to_their_offer(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        elements = [voprf.blind(secrets.token_bytes(8))[1] for _ in range(64)]

        def request(**changes: object) -> EvaluateRequest:
            good = {
                "offer_id": offer.offer_id,
                "request_id": b"r" * 16,
                "epoch": 1,
                "class_id": offer.class_ids[0],
                "blinded": elements,
            }
            return EvaluateRequest(**{**good, **changes})

        async def status(who: str = "acme", **changes: object) -> tuple[grpc.StatusCode, str]:
            return await refused(site.call("Exchange", "Evaluate", request(**changes), who))

        assert (await status(who="rival"))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert (await status(offer_id=b"x" * 16))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert (await status(epoch=2))[0] is grpc.StatusCode.NOT_FOUND
        for changes, field in (({"blinded": elements[:3]}, "blinded"), ({"request_id": b""}, "request_id")):
            code, message = await status(**changes)
            assert code is grpc.StatusCode.INVALID_ARGUMENT and field in message
        first = await site.call("Exchange", "Evaluate", request())
        assert await site.call("Exchange", "Evaluate", request()) == first, "a repeated request costs nothing"
        assert (await status(request_id=b"q" * 16))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        code, message = await status(class_id=offer.class_ids[1], request_id=b"s" * 16, blinded=[bytes(32)] * 64)
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "blinded" in message

    on_loopback(tmp_path, work)


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


def test_an_epoch_is_rotated_after_a_day_and_the_one_before_is_still_served(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path, RELEASE):
            pass  # makes the files
        store = Store(Database(tmp_path / "p.duckdb"))
        exchange = Exchange(store, KeyFolder(tmp_path / "keys"))
        now = time.time()
        await exchange.rotate(now)
        first = exchange.epoch().head.epoch
        await exchange.rotate(now + 3600)
        assert exchange.epoch().head.epoch == first
        await exchange.rotate(now + 25 * 3600)
        assert exchange.epoch().head.epoch == first + 1
        assert exchange.epoch(first).head.epoch == first
        await store.put_node(node("n2", "memory_limit=5"))
        await exchange.rotate(now)
        assert exchange.epoch().head.epoch == first + 2, "a new configuration gets a class"
        with pytest.raises(Unknown, match="over"):
            exchange.epoch(first)
        store.close()

    asyncio.run(inside())


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
