"""Reading processes: what they accept, and what becomes of messages that would take long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pharoah_serving import reading_worker
from pharoah_serving.costs import Cost, charging
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable

TABLE = "quick_readers"
MAX_CPU_SECONDS = 0.3
SOURCE = """
import os, time
from pharoah_serving.reading_worker import MAX_MEMORY_BYTES

names = ("reverse", "spin", "hoard", "refuse", "leave", "own_limits", "print_much")
READERS = {name: f"quick_readers:{name}" for name in names}

def reverse(*parts):
    return [part[::-1] for part in parts]

def spin(_):
    return [bytes(sum(range(1 << 60)))]  # one call of C code, which no handler of signals could leave

def hoard(_):
    return [bytes(4 * MAX_MEMORY_BYTES)]

def refuse(text):
    raise KeyError(text.decode())

def leave(_):
    os._exit(3)

def print_much(_):
    print("x" * 100_000)
    return [b"an answer"]

def own_limits(_):
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass
    return [str(os.nice(0)).encode(), str(os.getpid()).encode()]
"""


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table where reading processes find it: they search what this process does, but for the current folder."""
    (tmp_path / f"{TABLE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)


def reading(work: Callable[[ReadingProcesses], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with ReadingProcesses(TABLE, most_cpu_seconds=MAX_CPU_SECONDS) as processes:
            await work(processes)

    asyncio.run(inside())


def test_bytes_come_back_however_long_they_are_and_one_process_reads_all() -> None:
    long = bytes(range(256)) * (1 << 14)

    async def work(processes: ReadingProcesses) -> None:
        assert await processes.read("reverse", b"ab", b"", long) == [b"ba", b"", long[::-1]]
        assert await processes.read("print_much", b"") == [b"an answer"]
        with pytest.raises(Unreadable, match="what is wrong"):
            await processes.read("refuse", b"what is wrong")
        cost = Cost()
        with charging(cost):
            nice, pid = await processes.read("own_limits", b"")
        assert int(nice) >= reading_worker.NICE and cost.take() >= 0.05
        assert await asyncio.gather(*(processes.read("own_limits", b"") for _ in range(2))) == [[nice, pid]] * 2

    reading(work)


@pytest.mark.parametrize(
    ("name", "why"),
    [("spin", "s of processor time"), ("hoard", "memory"), ("leave", "has ended")],
)
def test_a_message_that_takes_too_much_is_refused_and_the_next_one_read(name: str, why: str) -> None:
    async def work(processes: ReadingProcesses) -> None:
        with pytest.raises(Unreadable, match=why):
            await processes.read(name, b"")
        assert await processes.read("reverse", b"ab") == [b"ba"]

    reading(work)


def test_a_process_ends_with_whoever_waits_for_it() -> None:
    async def work(processes: ReadingProcesses) -> None:
        _, pid = await processes.read("own_limits", b"")
        waiting = asyncio.create_task(processes.read("spin", b""))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)

    reading(work)
