"""What others have written is read in processes of its own: no time that grows with their bytes is the event loop's.

A message can be a deep or a long text, whose reading takes seconds, and a thread would hold the interpreter's lock
meanwhile. A reading process has a low priority and limits of its own; one message may take a few seconds of processor
time, which are charged to the caller, and then the process is ended. What it gives back is plain bytes, small or
checked, so that the event loop only passes it on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from types import TracebackType

from pharoah_serving.costs import current_cost
from pharoah_serving.errors import NotReady
from pharoah_serving.reading_worker import DONE, LENGTH, frame
from pharoah_system.async_limits import within
from pharoah_system.had_time import LimitClock
from pharoah_system.own_python import NEUTRAL_FOLDER, own_environment, own_module
from pharoah_system.with_parent import WITH_PARENT

log = logging.getLogger("pharoah.provider.reading")

WORKER = "pharoah_serving.reading_worker"
MAX_CPU_SECONDS = 5.0
"""Processor time of one message. The longest result of a cell that passes takes half a second (`python -m evaluation
hardening`, part worst_messages)."""
MAX_SECONDS = 50.0
"""The same with the start of a process and its reading of a disk, by the clock of limits (`had_time`). The kernel
ends what takes too much of the processor; so who reaches this was kept from reading: no message is to blame."""
IDLE_SECONDS = 120.0
"""How long a process stays that nobody needs; starting one takes half a second."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Libraries of numbers reserve memory for each thread, which the limit counts."""


class Unreadable(ValueError):
    """A message that is not accepted; the text states what is wrong with it."""


class ReadingProcesses:
    """Reads messages in processes that are started when the first one comes. Belongs to one event loop."""

    def __init__(self, table: str, most: int = 1, most_cpu_seconds: float = MAX_CPU_SECONDS) -> None:
        """`table` is the module that names the functions (`reading_worker`), `most` the number of processes, and
        `most_cpu_seconds` what one message may take of the processor."""
        self._table, self._turn, self._most_cpu_seconds = table, asyncio.Semaphore(most), most_cpu_seconds
        self._idle: list[Process] = []
        self._all: set[Process] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> ReadingProcesses:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer:
            self._timer.cancel()
        for process in list(self._all):
            await self._end(process)

    async def read(self, name: str, *parts: bytes) -> list[bytes]:
        """What the function of this name in the table makes of the parts of a message.

        Its processor time is charged to whom the current task works for. Raises Unreadable for what the function does
        not accept or what takes too much of the processor, and NotReady when no process can be started or none gets
        the time to read.
        """
        async with self._turn:
            process = self._find_idle() or await self._start()
            try:
                asking = _ask(process, [name.encode(), *parts])
                status, seconds, *answer = await within(LimitClock(MAX_SECONDS, process.pid), asking)
            except TimeoutError:
                await self._give_up(process)
                raise NotReady("the provider is too busy to read this now; send it again") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                raise Unreadable(await self._give_up(process)) from None
            except BaseException:
                await self._end(process)  # it works on a message that nobody waits for
                raise
            self._idle.append(process)
            self._plan_end()
            _charge(float(seconds))
            if status != DONE:
                raise Unreadable(answer[0].decode())
            return answer

    def _find_idle(self) -> Process | None:
        """A process that has nothing to do, if there is one."""
        while self._idle:
            if (process := self._idle.pop()).returncode is None:
                return process
            self._all.discard(process)  # somebody else has ended it
        return None

    async def _start(self) -> Process:
        """Raises NotReady."""
        command = own_module(WITH_PARENT, str(os.getpid()), WORKER, self._table, str(self._most_cpu_seconds))
        variables = {**own_environment(os.environ), **_ONE_THREAD}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env=variables, cwd=NEUTRAL_FOLDER, process_group=0
            )
        except OSError as error:
            log.error("no process can be started that reads messages: %s", error)
            raise NotReady("the provider can start no process that reads this; its log says more") from None
        self._all.add(process)
        return process

    async def _give_up(self, process: Process) -> str:
        """End a process that did not answer, and charge what it may have used; why it did not."""
        _charge(self._most_cpu_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # one that ends by itself has closed its output first
                await process.wait()
        await self._end(process)
        if process.returncode == -signal.SIGPROF:
            return f"reading it takes more than {self._most_cpu_seconds:g} s of processor time"
        log.error("a process that reads messages has ended (exit status %s)", process.returncode)
        return "the process that read it has ended"

    async def _end(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._all.discard(process)

    def _plan_end(self) -> None:
        """End idle processes when nobody has needed one for a while."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        for process in self._idle:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # the event loop waits for it
        self._all.difference_update(self._idle)
        self._idle.clear()


async def _ask(process: Process, message: Sequence[bytes]) -> list[bytes]:
    """The answer of a process. Raises IncompleteReadError or ConnectionError when it ends before."""
    assert process.stdin and process.stdout
    process.stdin.write(frame(message))
    await process.stdin.drain()
    (count,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    answer = []
    for _ in range(count):
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        answer.append(await process.stdout.readexactly(size))
    return answer


def _charge(seconds: float) -> None:
    if (cost := current_cost()) is not None:
        cost.add(seconds)
