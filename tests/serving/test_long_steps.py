"""The watch over the event loop: it counts the processor time of steps, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from pharoah_protocol.v1 import service
from pharoah_protocol.vocabulary import Role
from pharoah_serving.errors import Exhausted
from pharoah_serving.guarded_call import GuardedCall
from pharoah_serving.long_steps import LOGGED_SECONDS, MAX_STEP_SECONDS, StepWatch, watch_work, watching
from pharoah_serving.principals import Principal
from pharoah_serving.turns import Turns


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_step_that_computes_for_long_is_logged_with_its_caller_and_one_that_waits_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[None] = []
    watch = StepWatch(lambda: "Connect of agent/n9", lambda: counted.append(None))

    async def task() -> None:
        time.sleep(LOGGED_SECONDS * 1.5)  # somebody else has the processor
        await asyncio.sleep(0)

    async def work() -> str:
        await watch_work(task())  # within a step of the call: it is not counted twice
        await asyncio.create_task(wrapped())
        compute(LOGGED_SECONDS * 1.2)
        return "answer"

    async def wrapped() -> None:
        await watch_work(inside())

    async def inside() -> None:
        await asyncio.sleep(0)
        compute(LOGGED_SECONDS * 1.1)

    async def call() -> str:
        with watching(watch):
            return await watch_work(work(), watch)

    assert asyncio.run(call()) == "answer"
    assert [record.message.split(" took")[0] for record in caplog.records] == ["Connect of agent/n9: a step"] * 2
    assert len(counted) == 2 and LOGGED_SECONDS < watch.longest_seconds < MAX_STEP_SECONDS


def test_what_a_call_raises_and_is_cancelled_with_passes_the_watch() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise KeyError("noticed") from None

    async def call() -> None:
        task = asyncio.ensure_future(wrapped())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(KeyError, match="noticed"):
            await task

    async def wrapped() -> None:
        await watch_work(work(), StepWatch(str))

    asyncio.run(call())


def test_a_stream_ends_after_a_message_that_took_the_event_loop_for_too_long() -> None:
    method = next(method for method in service("Agent").methods if method.name == "Connect")
    call = GuardedCall("Connect", "", who=Principal(Role.AGENT, "n9"), watch=StepWatch(lambda: "Connect of n9"))
    seen: list[None] = []

    async def requests() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b""

    async def work() -> None:
        async for _ in call.each_parsed(method, requests(), Turns()):
            seen.append(None)
            assert call.watch
            call.watch.took(0.6 * len(seen))

    with pytest.raises(Exhausted, match=r"1\.2 s of the event loop"):
        asyncio.run(work())
    assert len(seen) == 2
