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

from pharoah_benchmarks.environments.answer import BUILD_SECONDS, BuildError
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile
from pharoah_protocol.text import sanitize_text
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json

log = logging.getLogger("pharoah.agent")

MOST_CHILDREN = 8
FAILURE_SECONDS = 600.0
"""How long an environment that could not be built is not tried again: its other cells follow within seconds."""
_BUILDER = "pharoah_benchmarks.environments.builder"


class EnvironmentChildren:
    """Children that run one module, inside `async with`: one in our own Python, and one in each environment."""

    def __init__(self, module: str, profile: NodeProfile, *arguments: str, limit_memory: bool = True) -> None:
        self._module, self._profile, self._arguments = module, profile, arguments
        self._limit_memory = limit_memory
        self._children: dict[str, tuple[Child, AsyncExitStack]] = {}
        """Text of an environment to its child, the one that was used last at the end."""
        self._failed: dict[str, tuple[float, str]] = {}
        """Text of an environment to when it could not be built (steady seconds), and why."""
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

    async def ask(self, environment: str, line: str, timeout_seconds: float) -> str:
        """One line to the child of an environment, one back; the time does not hold for a build.

        Raises BuildError, ChildDied, TimeoutError.
        """
        async with self._turn:
            child = await self._child(environment)
        return await child.ask(line, timeout_seconds)

    async def _child(self, environment: str) -> Child:
        if environment not in self._children:
            interpreter = await self._interpreter(environment) if environment else ""
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
            self._children[environment] = child, scope
        self._children[environment] = self._children.pop(environment)
        return self._children[environment][0]

    async def _make_room(self) -> None:
        """End the child that nobody has used for longest, where there are many."""
        idle = [environment for environment, (child, _) in self._children.items() if not child.busy]
        for environment in idle[: max(0, len(self._children) + 1 - MOST_CHILDREN)]:
            _, scope = self._children.pop(environment)
            await scope.aclose()

    async def _interpreter(self, environment: str) -> str:
        failed_at, reason = self._failed.get(environment, (0.0, ""))
        if reason and time.monotonic() - failed_at < FAILURE_SECONDS:
            raise BuildError(reason)
        try:
            async with asyncio.timeout(BUILD_SECONDS):
                answer = await read_json(_BUILDER, NO_LIMITS, environment)
            interpreter, reason = str(answer["python"]), sanitize_text(str(answer["reason"]), 1000)
        except (ChildDied, TimeoutError, ValueError, KeyError) as error:
            interpreter, reason = "", f"{type(error).__name__}: {error}"
        if reason:
            log.warning("environment %s is not built: %s", environment, reason)
            self._failed[environment] = time.monotonic(), reason
            raise BuildError(reason)
        return interpreter
