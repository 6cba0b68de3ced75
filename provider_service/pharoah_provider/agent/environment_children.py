"""One child for each environment, so that cells of different software do not share a process.

A child is started when its environment is first needed; the environment is built before where it was not yet. Few
children stay at a time: each holds torch, about 220 MB (`smaps_rollup` of a fork server).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple

from pharoah_benchmarks.environments.answer import BUILD_SECONDS, BuildError
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_system.text import sanitize_text

log = logging.getLogger("pharoah.agent")

MAX_CHILDREN = 8
FAILURE_SECONDS = 600.0
"""How long an environment that could not be built is not tried again: its other cells follow within seconds."""
PASSING_SECONDS = 60.0
"""The same where the reason may pass: an index of packages that is away takes each attempt a minute."""
_BUILDER = "pharoah_benchmarks.environments.builder"


class NotStarted(OSError):
    """A child does not begin to answer, and that says nothing about what it would be asked."""


async def _warm(child: Child, environment: str) -> None:
    """Wait until a child has started. One that ends at its start shows that its environment does not work, unless it is
    our own."""
    try:
        await child.warm()
    except TimeoutError:
        raise NotStarted("it does not answer in time") from None
    except ChildDied as error:
        if environment:
            raise
        raise NotStarted(str(error)) from None


class _Software(NamedTuple):
    """What a child runs in."""

    environment: str
    """Its text; empty for our own Python."""
    locks: str


class EnvironmentChildren:
    """Children that run one module, inside `async with`: one in our own Python, and one in each environment."""

    def __init__(
        self, module: str, profile: NodeProfile, *arguments: str, limit_memory: bool = True, warms: bool = False
    ) -> None:
        """`warms`: a child starts before it is asked, within a time of its own; its module answers an empty line."""
        self._module, self._profile, self._arguments = module, profile, arguments
        self._limit_memory, self._warms = limit_memory, warms
        self._children: dict[_Software, tuple[Child, AsyncExitStack]] = {}
        """To each its child, the one that was used last at the end."""
        self._failed: dict[_Software, tuple[float, BuildError]] = {}
        """What could not be built to when it is tried again (steady seconds), and why."""
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> EnvironmentChildren:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as all_of_them:
            for _, scope in self._children.values():
                all_of_them.push_async_exit(scope)
            self._children.clear()

    async def ask(self, environment: str, line: str, timeout_seconds: float, locks: str = "") -> str:
        """One line to the child of an environment with its locks, one back; the time does not hold for a build.

        Raises BuildError, ChildDied, TimeoutError, and NotStarted where this machine is why there is no child.
        """
        async with self._turn:
            child = await self._child(_Software(environment, locks))
        if self._warms:
            await _warm(child, environment)
        return await child.ask(line, timeout_seconds)

    async def _child(self, software: _Software) -> Child:
        if software not in self._children:
            interpreter = await self._interpreter(software) if software.environment else ""
            await self._make_room()
            child = Child(
                self._module,
                self._profile,
                *self._arguments,
                limit_memory=self._limit_memory,
                interpreter=interpreter,
            )
            scope = AsyncExitStack()
            await scope.enter_async_context(child)
            self._children[software] = child, scope
        self._children[software] = self._children.pop(software)
        return self._children[software][0]

    async def _make_room(self) -> None:
        """End the child that nobody has used for longest, where there are many."""
        idle = [software for software, (child, _) in self._children.items() if not child.busy]
        for software in idle[: max(0, len(self._children) + 1 - MAX_CHILDREN)]:
            _, scope = self._children.pop(software)
            await scope.aclose()

    async def _interpreter(self, software: _Software) -> str:
        again_at, failure = self._failed.get(software, (0.0, BuildError("")))
        if time.monotonic() < again_at:
            raise BuildError(str(failure), may_be_tried_again=failure.may_be_tried_again)
        try:
            async with asyncio.timeout(BUILD_SECONDS):
                answer = await read_json(_BUILDER, NO_LIMITS, *software)
            interpreter, reason = str(answer["python"]), sanitize_text(str(answer["reason"]), 1000)
            again = answer["may_be_tried_again"] is True
        except (ChildDied, TimeoutError, ValueError, KeyError) as error:
            interpreter, reason, again = "", f"{type(error).__name__}: {error}", True
        if reason:
            log.warning("environment %s is not built: %s", software.environment, reason)
            failure = BuildError(reason, may_be_tried_again=again)
            pause = PASSING_SECONDS if again else FAILURE_SECONDS
            self._failed[software] = time.monotonic() + pause, failure
            raise failure
        return interpreter
