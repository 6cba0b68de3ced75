"""An agent at its worst, as a process: `python -m evaluation.hardening.worst_agents ENDPOINT TOKEN NODE SECONDS`.

It changes its way every few seconds: it answers cells that were really ordered with the results that take the longest
to read and pass, beside floods of telemetry; it answers what nobody has ordered, in short and in long messages; and it
connects again and again. Its priority is the lowest: what it computes itself must not look like slowness of the
provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path

import grpc.aio

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.channels import Access, AccessFiles
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import AgentMessage, AgentOrder, Hello, LookResult, ProbeResult, Telemetry
from pharoah_protocol.v1 import CellResult as CellMessage
from pharoah_protocol.vocabulary import Outcome
from tests.harness.loopback import hello, node
from tests.harness.worst_messages import MAX_GRAMMAR, fingerprint, longest_that_passes, passing_grammar

ROWS = 2_400
"""Telemetry in one message of 64 KiB."""
Send = Callable[[AgentMessage], Awaitable[None]]


def _own_hello(name: str) -> Hello:
    return hello(replace(node("n2"), node=name, host=f"host of {name}"))


def _flood(batch: int) -> AgentMessage:
    rows = Telemetry(
        batch=batch, sampled_at=[time.time()] * ROWS, metric=["m"] * ROWS, device=["d"] * ROWS,
        value=[float(batch)] * ROWS,
    )  # fmt: skip
    return AgentMessage(telemetry=rows)


@cache
def passing_result(cell_text: str) -> str:
    """The result of a cell that takes the longest to read and is taken."""
    cell = Cell.from_json(cell_text)
    result = CellResult(
        cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1] * 4, fingerprint=fingerprint(passing_grammar())
    )
    return longest_that_passes(cell, result)


async def ordered(order: AgentOrder | None, send: Send) -> None:
    """Good answers to all orders, and telemetry while there is none."""
    if order is None:
        for batch in range(20):
            await send(_flood(batch))
    elif order.WhichOneof("content") == "cell":
        outcome = await asyncio.to_thread(passing_result, order.cell.cell)
        await send(AgentMessage(cell=CellMessage(order_id=order.cell.order_id, outcome=outcome)))
    elif order.WhichOneof("content") == "probe":
        for benchmark in order.probe.benchmarks:
            seconds, now = [0.01] * order.probe.repeats, time.time()
            result = ProbeResult(order_id=order.probe.order_id, benchmark=benchmark, seconds=seconds,
                                 beside_job=order.probe.beside_job, started_at=now, ended_at=now)  # fmt: skip
            await send(AgentMessage(probe=result))


async def unordered(order: AgentOrder | None, send: Send) -> None:
    """What nobody has asked for, as long as every message may be."""
    if order is None:
        await send(AgentMessage(cell=CellMessage(order_id="o", outcome=fingerprint(passing_grammar())[:60_000])))
        await send(AgentMessage(cell=CellMessage(order_id="o", outcome="[]" * 30_000)))
        await send(AgentMessage(probe=ProbeResult(order_id="o", seconds=[0.1] * 7_000)))
        await send(AgentMessage(look=LookResult(order_id="o", idle=True)))


async def unordered_and_long(order: AgentOrder | None, send: Send) -> None:
    """The longest messages that gRPC lets in."""
    if order is None:
        for outcome in (fingerprint(MAX_GRAMMAR), "[]" * 2_090_000):
            await send(AgentMessage(cell=CellMessage(order_id="o", outcome=outcome)))


async def connecting(_: AgentOrder | None, __: Send) -> None:
    """Nothing: the stream ends at once, and the next one begins."""
    raise ConnectionAbortedError


WAYS = {ordered: 10.0, unordered: 3.0, unordered_and_long: 3.0, connecting: 3.0}
"""The ways and their seconds; orders take a second to come."""


async def _stream(
    access: Access, channel: grpc.aio.Channel, name: str, way: Callable[[AgentOrder | None, Send], Awaitable[None]]
) -> None:
    """One stream, in one way, until the provider ends it."""
    out: asyncio.Queue[AgentMessage] = asyncio.Queue(2)

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=_own_hello(name))
        while True:
            yield await out.get()

    async def unasked() -> None:
        while True:
            await way(None, out.put)
            await asyncio.sleep(0)

    call = Stub(channel, "Agent").Connect(messages(), metadata=access.metadata)
    sending: asyncio.Task[None] | None = None
    try:
        async for order in call:
            sending = sending or asyncio.create_task(unasked())
            if sending.done():
                return
            await way(order, out.put)
    finally:
        call.cancel()
        if sending:
            sending.cancel()
            await asyncio.wait({sending})


async def _attack(endpoint: str, token: Path, name: str, seconds: float) -> None:
    access = Access.from_files(endpoint, AccessFiles(token=token))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), access.aio_channel(("grpc.enable_retries", 0)) as channel:
            for way, its_seconds in cycle(WAYS.items()):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(its_seconds):
                        while True:
                            with contextlib.suppress(grpc.aio.AioRpcError, ConnectionAbortedError):
                                await _stream(access, channel, name, way)
                            await asyncio.sleep(0)


if __name__ == "__main__":
    os.nice(19)
    address, token_file, own_name, lasting = sys.argv[1:]
    passing_grammar()
    print("ready", flush=True)
    asyncio.run(_attack(address, Path(token_file), own_name, float(lasting)))
