"""What tenants and agents can do to a provider at their worst, one coroutine per way; `stranger_floods` has the rest.

`python -m evaluation.hardening.floods KIND ENDPOINT METRICS PKI CALLER SECONDS` runs one of them as a process of its
own, at the lowest priority: on a machine with few cores, what it computes itself must not look like the provider's
slowness.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio

from evaluation.hardening.flood_target import Target, ignoring, in_parallel, side_by_side
from evaluation.hardening.stranger_floods import STRANGER, rapid_reset
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AgentMessage,
    CellResult,
    EndRunRequest,
    EndState,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    GetTableRequest,
    JoinRunRequest,
    ReportRequest,
    Telemetry,
)
from pharoah_protocol.voprf import protocol
from tests.harness.loopback import hello, node, ticket
from tests.harness.worst_messages import MAX_GRAMMAR, fingerprint, passing_grammar

MAXIMAL_RANKS = 1024
TELEMETRY_ROWS = 10_000


# ---- tenants --------------------------------------------------------------------------------------------------------


async def epochs(target: Target) -> None:
    """The cheapest call, as often as it is answered."""
    await in_parallel(
        target,
        lambda channel: lambda: Stub(channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5),
    )


async def questions(target: Target) -> None:
    """Offers and evaluations until the day's quota is used up, and on."""

    def asking(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub, blinded = Stub(channel, "Exchange"), [protocol.filler() for _ in range(64)]

        async def one() -> None:
            offer = await stub.GetOffer(GetOfferRequest(ticket=ticket("n1")), timeout=5)
            request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=blinded)
            await stub.Evaluate(request, timeout=5)

        return one

    await in_parallel(target, asking)


async def tables(target: Target) -> None:
    """The whole tables, again and again."""

    def reading(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub = Stub(channel, "Exchange")

        async def one() -> None:
            offer = await stub.GetOffer(GetOfferRequest(ticket=ticket("n1")), timeout=5)
            for class_id in offer.class_ids:
                request = GetTableRequest(epoch=offer.epoch, class_id=class_id)
                async for _ in stub.GetTable(request, timeout=5):
                    pass

        return one

    await in_parallel(target, reading)


async def _joined(stub: Any, ranks: int) -> bytes:
    run_id = secrets.token_bytes(16)
    request = JoinRunRequest(run_id=run_id, ticket=ticket("n1"), ranks=ranks)
    await stub.JoinRun(request, timeout=5)
    return run_id


def _levels(first: int, ranks: int) -> list[int]:
    """Levels that no cache knows and no stretch of equal values covers."""
    return [(first + 7 * at) % 29 - 14 for at in range(4096 // ranks * ranks)]


async def reports(target: Target) -> None:
    """Sixteen runs of 1,024 ranks that send the largest reports, whose levels change with every second."""

    async def one() -> None:
        async with target.channel() as channel:
            stub, ranks = Stub(channel, "Runs"), MAXIMAL_RANKS
            run_id, first = await _joined(stub, ranks), 0
            while True:
                levels = _levels(first, ranks)
                request = ReportRequest(
                    run_id=run_id, attempt=1, first_second=first, first_ended_at=time.time(), step_levels=levels,
                    memory_levels=levels,
                )  # fmt: skip
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.Report(request, timeout=5)
                first += 4096 // ranks

    await side_by_side(16, one)


async def joins(target: Target) -> None:
    """Runs that join and never report."""
    await in_parallel(target, lambda channel: lambda: _joined(Stub(channel, "Runs"), 1))


async def ends(target: Target) -> None:
    """Runs that join, report what they may at once, end, and report again."""

    def ending(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub = Stub(channel, "Runs")

        async def one() -> None:
            run_id = await _joined(stub, 8)
            levels = _levels(0, 8)
            report = ReportRequest(
                run_id=run_id, attempt=1, first_ended_at=time.time(), step_levels=levels, memory_levels=levels
            )
            for _ in range(10):
                await ignoring(stub.Report(report, timeout=5))
                await ignoring(stub.EndRun(EndRunRequest(run_id=run_id, state=EndState.END_STATE_OK), timeout=5))

        return one

    await in_parallel(target, ending)


# ---- agents ---------------------------------------------------------------------------------------------------------


async def telemetry(target: Target) -> None:
    """The largest batches of telemetry, without a pause."""

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello(node("n2")))
        for batch in range(1, 1 << 30):
            rows = Telemetry(
                batch=batch, sampled_at=[time.time()] * TELEMETRY_ROWS, metric=["m"] * TELEMETRY_ROWS,
                device=["d"] * TELEMETRY_ROWS, value=[float(batch)] * TELEMETRY_ROWS,
            )  # fmt: skip
            yield AgentMessage(telemetry=rows)

    async def one() -> None:
        async with target.channel() as channel:
            async for _ in Stub(channel, "Agent").Connect(messages()):
                pass

    await side_by_side(2, one)


async def connects(target: Target) -> None:
    """An agent that connects and goes away at once, on many streams."""

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello(node("n2")))

    def connecting(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        async def one() -> None:
            call = Stub(channel, "Agent").Connect(messages())
            await call.read()
            call.cancel()

        return one

    await in_parallel(target, connecting)


async def cell_results(target: Target) -> None:
    """Results that nobody has ordered: short ones with a grammar that takes long to name, and the longest ones."""
    short, long = fingerprint(passing_grammar())[:60_000], fingerprint(MAX_GRAMMAR)

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello(node("n2")))
        while True:
            for outcome in (short, long, "[]" * 2_090_000):
                yield AgentMessage(cell=CellResult(order_id="o", outcome=outcome))

    async def one() -> None:
        async with target.channel() as channel:
            async for _ in Stub(channel, "Agent").Connect(messages()):
                pass

    await side_by_side(2, one)


TENANT = (epochs, questions, tables, reports, joins, ends, rapid_reset)
AGENT = (telemetry, cell_results, connects, rapid_reset)


async def idle(_: Target) -> None:
    """The control: the same CPU use as an attacker's at most, and no call."""
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


KINDS = {work.__name__: work for work in (*STRANGER, *TENANT, *AGENT, idle)}


async def _run(kind: str, target: Target, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await KINDS[kind](target)


if __name__ == "__main__":
    os.nice(19)
    kind, endpoint, metrics, pki, caller, seconds = sys.argv[1:]
    print("ready", flush=True)
    asyncio.run(_run(kind, Target(endpoint, metrics, Path(pki), caller), float(seconds)))
