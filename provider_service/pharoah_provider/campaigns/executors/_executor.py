"""What an executor is."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.works import Work, WorkResult
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet

_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Executor(Protocol):
    """Does works while one campaign runs.

    Its nodes do one work at a time each. A node that is lost is no longer among them, and what it did raises NotReady;
    the campaign then has that work done again.
    """

    @property
    def away_seconds(self) -> float:
        """How long a node that is away keeps its block, because it may come back under its name."""
        ...

    def nodes(self) -> list[Node]:
        """All nodes that can do a work now. A node without facts has no context."""
        ...

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:
        """Do one work on one node. `order_id`: of an order that may be sent again after a restart.

        Raises NotReady for a node that is lost, and WrongAnswer for a result that cannot be that of the work.
        """
        ...

    def release(self, node: str, order_id: str) -> None:
        """The result of an order is stored, or nobody waits for it any more."""


@dataclass(frozen=True, kw_only=True)
class ExecutorKind:
    """One entry of the registry. Raises ValueError for a name that cannot be an option of the command line."""

    name: str
    help: str
    has_contexts: bool
    """Whether its nodes are nodes of the fleet. Results of all others are evidence about software alone."""
    options: tuple[str, ...]
    """Which of the options it takes: `slots`, `address`, `profile`."""
    remedy: str
    """What to do when no node is left that could do what is left."""
    check: Callable[[ExecutorSettings], None]
    """Raises ValueError for settings that it cannot run with here; it starts nothing."""
    open: Callable[[ExecutorSettings, Fleet], AbstractAsyncContextManager[Executor]]
    """Starts it, and ends whatever it has started. Raises NotReady when it cannot be started."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"executor {self.name!r}: expected a name of lower-case letters, digits and -")

    def check_settings(self, settings: ExecutorSettings) -> None:
        """Raises ValueError for an option that it does not take, and for what it cannot run with."""
        for option in settings.options():
            if option not in self.options:
                known = f"it takes {', '.join(self.options)}" if self.options else "it takes none"
                raise ValueError(f"executor.{option}: no option of the executor {self.name}; {known}")
        self.check(settings)
