"""How many connections to the local socket are open, in all and of each user.

Every local user may connect, and each connection takes a descriptor of the agent. An agent without descriptors can read
no file of the kernel any more: its node would say hello with other facts.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

log = logging.getLogger("pharoah.agent")

MAX_CONNECTIONS = 512
"""Connections in all: half of the 1,024 descriptors that a process has by default (systemd.exec(5), LimitNOFILE)."""


def _most() -> int:
    """A process that may have few descriptors keeps half of them for itself, too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)


@dataclass
class OpenConnections:
    """The connections of one socket. Belongs to the event loop."""

    most: int = field(default_factory=_most)
    _by_user: Counter[int] = field(default_factory=Counter, init=False)
    _warned: bool = field(default=False, init=False)

    @property
    def most_of_a_user(self) -> int:
        """Half of all, so that no user alone can lock the others out. A connection lasts some milliseconds, so this is
        enough for hundreds of jobs that one user starts at once."""
        return self.most // 2

    @contextmanager
    def enter(self, user: int) -> Iterator[bool]:
        """Count a connection of this user while inside; False where there is no room for it."""
        if self._by_user[user] >= self.most_of_a_user or self._by_user.total() >= self.most:
            self._warn(user)
            yield False
            return
        self._by_user[user] += 1
        try:
            yield True
        finally:
            self._by_user -= Counter({user: 1})  # a user without a connection leaves no entry

    def _warn(self, user: int) -> None:
        """Say it once: whoever connects again and again must not fill the log."""
        if not self._warned:
            log.warning("user %d has %d of %d connections to the local socket; at most %d of a user and %d in all stay "
                        "open", user, self._by_user[user], self._by_user.total(), self.most_of_a_user,
                        self.most)  # fmt: skip
        self._warned = True
