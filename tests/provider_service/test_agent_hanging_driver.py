"""A driver that hangs: it holds one thread, delays nothing else, and stops nobody from ending a child."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from pharoah_provider.agent import stream as stream_module
from pharoah_provider.agent.child_processes import ChildProcess
from pharoah_provider.agent.look import HANG_SECONDS, Look
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.agent.shared_question import SharedQuestion
from pharoah_provider.agent.signals import Reading
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of
from tests.harness.loopback import node

GIVE_UP_SECONDS = 30.0
"""How long a driver here hangs at most, so that a test that fails ends."""
STAT = "cpu0 9 0 0 500 7 0 0 0 0 0\n"


def test_a_child_is_killed_while_drivers_that_hang_hold_all_threads_of_the_pool() -> None:
    go_on = threading.Event()

    async def inside() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        hangs = asyncio.create_task(asyncio.to_thread(go_on.wait, GIVE_UP_SECONDS))
        child = await ChildProcess.start(["sleep", "600"], os.environ)
        try:
            await child.end()
            assert child.popen.poll() == -signal.SIGKILL and not hangs.done()
        finally:
            go_on.set()
            await hangs

    asyncio.run(inside())


def test_work_in_a_thread_of_its_own_returns_and_raises() -> None:
    def fails() -> None:
        raise OSError("the process is gone")

    here, elsewhere = asyncio.run(in_own_thread(threading.get_ident)), threading.get_ident()
    assert here != elsewhere
    with pytest.raises(OSError, match="the process is gone"):
        asyncio.run(in_own_thread(fails))


def test_work_is_done_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a cell that has used up the limit of processes. What ends the cell is such work."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert asyncio.run(in_own_thread(threading.get_ident)) == threading.get_ident()


def test_looks_at_a_node_whose_driver_hangs_hold_one_thread_and_see_no_idle_node() -> None:
    now, asked, go_on = [0.0], [0], threading.Event()

    def hangs() -> set[int]:
        asked[0] += 1
        go_on.wait(GIVE_UP_SECONDS)
        return set()

    async def nothing(_: float) -> None:
        return

    look = Look((0,), stat=lambda: STAT, gpu_users=hangs, clock=lambda: now[0], pause=nothing)

    async def inside() -> None:
        try:
            with pytest.raises(TimeoutError):  # the provider gives up
                await asyncio.wait_for(look.idle(), 0.01)
            now[0] += HANG_SECONDS + 1.0
            for _ in range(3):
                assert not await asyncio.wait_for(look.idle(), 10.0)
        finally:
            go_on.set()
        await look._driver.answer()
        assert asked == [1]
        assert await look.idle(), "the driver answers again"

    asyncio.run(inside())


def test_a_driver_that_hangs_while_the_connection_is_made_again_holds_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sample that the first connection has asked for comes on the last one."""
    asked, go_on = [0], threading.Event()

    def hangs() -> list[Reading]:
        asked[0] += 1
        go_on.wait(GIVE_UP_SECONDS)
        return [Reading(float(asked[0]))]

    class Times:
        def __init__(self, _: float) -> None:
            self.asked_for = asyncio.Event()
            latest.append(self)

        async def next(self) -> float:
            self.asked_for.set()
            return 5.0

        async def leave(self) -> None:
            return

    latest: list[Times] = []
    monkeypatch.setattr(stream_module, "SampleTimes", Times)
    nowhere, telemetry = cast(Any, None), Telemetry(signals=[signal_of(leaves_node=True, read=hangs)])

    async def inside() -> None:
        stream = AgentStream(node("n1"), nowhere, telemetry, nowhere, nowhere, Look((0,)))
        try:
            for number in range(3):
                sampling = asyncio.create_task(stream._sample(1.0))
                await asyncio.sleep(0)
                await latest[-1].asked_for.wait()
                for _ in range(3):  # until it waits for the driver
                    await asyncio.sleep(0)
                if number < 2:
                    sampling.cancel()
                    await asyncio.wait({sampling})
        finally:
            go_on.set()
        message = await stream._out.get()
        sampling.cancel()
        await asyncio.wait({sampling})
        assert message is not None and list(message.telemetry.value) == [1.0]

    asyncio.run(inside())


def test_a_question_that_fails_fails_for_all_who_wait_and_is_asked_again() -> None:
    asked = [0]

    def fails_once() -> int:
        asked[0] += 1
        if asked[0] == 1:
            raise OSError("the driver is being loaded")
        return asked[0]

    async def inside() -> None:
        question = SharedQuestion(fails_once, hold_seconds=60.0, clock=lambda: 0.0)
        failed = await asyncio.gather(question.answer(), question.answer(), return_exceptions=True)
        assert [type(error) for error in failed] == [OSError, OSError] and asked == [1]
        assert [await question.answer() for _ in range(3)] == [2, 2, 2], "an answer holds for a while"

    asyncio.run(inside())
