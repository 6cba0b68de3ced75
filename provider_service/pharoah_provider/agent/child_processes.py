"""Children that need torch: the micro-benchmark worker and the campaign fork server, both under the node profile.

Both speak JSON lines. They are started when first needed and stopped after some idle time, so that an agent on a quiet
node holds no memory for them. A child never outlives its owner: its scope kills its process group and waits for it, and
the kernel kills it when the agent itself is killed (`pharoah_system.parent_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pharoah_protocol.node_profile import NodeProfile, command_under, environment
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_system.async_limits import within
from pharoah_system.had_time import LimitClock
from pharoah_system.held_folders import hold_folder
from pharoah_system.own_python import NEUTRAL_FOLDER, own_environment, own_module
from pharoah_system.process_family import end_family
from pharoah_system.with_parent import WITH_PARENT

log = logging.getLogger("pharoah.agent")

IDLE_SECONDS = 600.0
START_SECONDS = 60.0
"""How long a child may take until it answers, at full speed: torch is read from a slow disk in several seconds."""
PACE_SECONDS = 0.2
"""A child that starts at a share of the time works for this share of so many seconds, and then pauses."""
MAX_LINE_BYTES = 1 << 24
_PREFIX = "ph-child-"
"""Begins the name of the folder of a child for temporary files; short, because sockets in it have paths of at most 107
characters (unix(7))."""
EXIT_SECONDS = 5.0
"""How long a killed process may take to end. Only one that hangs inside a device driver takes longer."""
POLL_SECONDS = 0.005


class ChildDied(Exception):
    """The child ended before it answered; the message has its exit status."""


@dataclass(frozen=True)
class ChildProcess:
    """A running process in a process group of its own. One socket is its standard input and output."""

    popen: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    owned: contextlib.ExitStack
    """Its folder for temporary files: what it leaves there when it is killed goes with it."""

    @classmethod
    async def start(cls, command: Sequence[str], variables: Mapping[str, str]) -> ChildProcess:
        """A start that is cancelled leaves no process and no file behind."""
        with contextlib.ExitStack() as owned:
            folder = owned.enter_context(hold_folder(_PREFIX)).path
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    popen = _popen(command, {**variables, "TMPDIR": str(folder)}, theirs)
                except BaseException:
                    ours.close()
                    raise
            try:
                reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
            except BaseException:
                ours.close()
                await complete_despite_cancellation(_kill(popen))
                raise
            return cls(popen, reader, writer, owned.pop_all())

    async def end(self) -> None:
        """Kill all that it has started, and wait for the process; a caller that is cancelled waits for it, too."""
        await complete_despite_cancellation(self._end())

    async def _end(self) -> None:
        with self.owned:
            await _kill(self.popen)
            self.writer.close()
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()


def _popen(command: Sequence[str], variables: Mapping[str, str], theirs: socket.socket) -> subprocess.Popen[bytes]:
    # A group, not a session: Linux gives each session a CPU share of its own (sched(7), autogroup), and a
    # micro-benchmark in a session of its own would not notice what takes the CPU from the job.
    return subprocess.Popen(
        command,
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        env=variables,
        cwd=NEUTRAL_FOLDER,
        process_group=0,
    )


class Child:
    """One JSON-lines child, inside `async with`. `ask` is serialised: a child does one thing at a time."""

    def __init__(
        self,
        module: str,
        profile: NodeProfile,
        *arguments: str,
        limit_memory: bool = True,
        interpreter: str = "",
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`interpreter`: the Python of an environment; by default our own. It is stopped when it was not used for
        `idle_seconds`."""
        self._idle_seconds = idle_seconds
        command = own_module(WITH_PARENT, str(os.getpid()), module, *arguments, interpreter=interpreter)
        self._command = command_under(profile, command, limit_memory)
        self._environment = {**own_environment(os.environ), **environment(profile)}
        self._process: ChildProcess | None = None
        self._answered = False
        """Whether the process has answered, so that its start-up is over."""
        self._turn = asyncio.Lock()
        self._used_at = time.monotonic()
        self._idle_watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Child:
        self._idle_watch = asyncio.create_task(self._stop_when_idle())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._idle_watch:
            self._idle_watch.cancel()
        await complete_despite_cancellation(self._close())

    async def ask(self, line: str, timeout_seconds: float) -> str:
        """One line to the child, one back. The seconds are those that the child has had (`pharoah_system.had_time`).

        Raises ChildDied, TimeoutError (then the child is stopped).
        """
        async with self._turn:
            return await self._ask(line, timeout_seconds)

    @property
    def busy(self) -> bool:
        """Whether it does something now."""
        return self._turn.locked()

    @property
    def is_warm(self) -> bool:
        """Whether it runs and its start-up is over."""
        return self._answered and self._process is not None and self._process.popen.poll() is None

    async def warm(self, duty: float = 1.0) -> None:
        """Start it now, and wait until it answers an empty line, so that its start-up does not fall into a
        measurement. `duty`: the share of the time in which it may work until then.

        Raises ChildDied, TimeoutError (then the child is stopped).
        """
        async with self._turn:
            if not self.is_warm:
                async with _keep_pace((await self._start()).popen, duty):
                    await self._ask("", START_SECONDS / duty)
            self._used_at = time.monotonic()

    async def stop(self) -> None:
        """Stop it after what it does now; it is started again when it is needed."""
        async with self._turn:
            await self._stop()

    async def _ask(self, line: str, timeout_seconds: float) -> str:
        try:
            process = await self._start()
            return await within(LimitClock(timeout_seconds, process.popen.pid), self._exchange(line, process))
        except (TimeoutError, asyncio.CancelledError):
            await self._stop()
            raise
        finally:
            self._used_at = time.monotonic()

    async def _exchange(self, line: str, process: ChildProcess) -> str:
        try:
            process.writer.write(line.encode() + b"\n")
            await process.writer.drain()
            answer = await process.reader.readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            status = await _exit_status(process.popen, EXIT_SECONDS)
            await self._stop()
            raise ChildDied(f"exit status {status}")
        self._answered = True
        return answer.decode()

    async def _start(self) -> ChildProcess:
        if self._process is not None and self._process.popen.poll() is not None:
            await self._stop()
        if self._process is None:
            self._process = await ChildProcess.start(self._command, self._environment)
        return self._process

    async def _stop(self) -> None:
        process, self._process, self._answered = self._process, None, False
        if process is not None:
            await process.end()

    async def _stop_when_idle(self) -> None:
        while True:
            await asyncio.sleep(max(1.0, self._used_at + self._idle_seconds - time.monotonic()))
            async with self._turn:
                if time.monotonic() - self._used_at >= self._idle_seconds:
                    await self._stop()

    async def _close(self) -> None:
        if self._idle_watch:
            await asyncio.wait({self._idle_watch})
        await self._stop()


async def read_json(module: str, profile: NodeProfile, *arguments: str) -> dict[str, Any]:
    """The JSON object that a module prints under this node's profile, in a child. Raises ChildDied."""
    command = command_under(profile, own_module(WITH_PARENT, str(os.getpid()), module, *arguments))
    async with _running(command) as process:
        process.writer.write_eof()
        output = await process.reader.read()
        status = await _exit_status(process.popen, EXIT_SECONDS)
    if status != 0:
        raise ChildDied(f"{module} does not run under the profile of this node (exit status {status})")
    answer: dict[str, Any] = json.loads(output)
    return answer


@asynccontextmanager
async def _running(command: Sequence[str]) -> AsyncIterator[ChildProcess]:
    process = await ChildProcess.start(command, own_environment(os.environ))
    try:
        yield process
    finally:
        await process.end()


@asynccontextmanager
async def _keep_pace(popen: subprocess.Popen[bytes], duty: float) -> AsyncIterator[None]:
    """Inside, the process group of a child works for this share of the time only: it is stopped and continued, which
    needs no rights and can be undone, unlike a low priority (setpriority(2))."""
    if duty >= 1:
        yield
        return
    pacing = asyncio.create_task(_pace(popen, duty))
    try:
        yield
    finally:
        pacing.cancel()
        try:
            await asyncio.wait({pacing})
        finally:
            _signal_group(popen, signal.SIGCONT)


async def _pace(popen: subprocess.Popen[bytes], duty: float) -> None:
    while popen.poll() is None:
        _signal_group(popen, signal.SIGCONT)
        await asyncio.sleep(PACE_SECONDS * duty)
        _signal_group(popen, signal.SIGSTOP)
        await asyncio.sleep(PACE_SECONDS * (1 - duty))


def _signal_group(popen: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Nothing happens once the child has ended: its number may be that of another group by then."""
    if popen.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, number)


async def _kill(popen: subprocess.Popen[bytes]) -> None:
    """Kill a child with all that it has started, and wait until the child has ended."""
    if popen.poll() is None:  # else the number may be that of another process by now
        # In a thread, because a cell may have started thousands of processes; in one of its own, because drivers that
        # hang may hold all threads of the pool.
        await in_own_thread(lambda: end_family(lambda: {popen.pid}))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)  # the group outlives its leader
    if await _exit_status(popen, EXIT_SECONDS) is None:
        log.error("process %d was killed and has not ended within %g s", popen.pid, EXIT_SECONDS)


async def _exit_status(popen: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status of a child that is about to end; None when it still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while (status := popen.poll()) is None and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
    return status
