"""Children that need torch: the micro-benchmark worker and the campaign fork server, both under the node profile.

Both speak JSON lines. They are started when first needed and stopped after some idle time, so that an agent on a quiet
node holds no memory for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pharoah_protocol.node_profile import command_under, environment

IDLE_SECONDS = 600.0


class ChildDied(Exception):
    """The child ended before it answered; carries the last line it said."""


class Child:
    """One JSON-lines child. `ask` is serialised: a child does one thing at a time."""

    def __init__(self, module: str, profile: Mapping[str, Any], *arguments: str, limit_memory: bool = True) -> None:
        self._command = command_under(profile, [sys.executable, "-m", module, *arguments], limit_memory)
        self._environment = {**os.environ, **environment(profile)}
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, line: str, timeout_seconds: float) -> str:
        """One line to the child, one back. Raises ChildDied, TimeoutError (then the child is stopped)."""
        async with self._turn:
            if self._idle:
                self._idle.cancel()
            try:
                async with asyncio.timeout(timeout_seconds):
                    return await self._exchange(line)
            except (TimeoutError, asyncio.CancelledError):
                self.stop()
                raise
            finally:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.stop)

    async def warm(self) -> None:
        """Start it now, so that its start-up does not fall into a measurement."""
        async with self._turn:
            await self._started()

    def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._process = None

    async def _exchange(self, line: str) -> str:
        process = await self._started()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
            answer = await process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            status = await process.wait()
            self._process = None
            raise ChildDied(f"exit status {status}")
        return answer.decode()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=1 << 24,
            )
        return self._process


async def read_json(module: str, profile: Mapping[str, Any]) -> dict[str, Any]:
    """What a module prints under this node's profile, in a child. Raises ChildDied."""
    command = command_under(profile, [sys.executable, "-m", module])
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise ChildDied(f"{module} does not run under the profile of this node (exit status {process.returncode})")
    answer: dict[str, Any] = json.loads(output)
    return answer
