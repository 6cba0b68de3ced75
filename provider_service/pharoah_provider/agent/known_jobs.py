"""Which processes of this node belong to jobs that Pharoah knows, and how long they have computed.

A job is known when its sidecar has asked this agent for a node ticket. The kernel says who asked: the process and its
user (SO_PEERCRED, unix(7)) and its control groups (cgroups(7)), which a container or a batch job has for itself.
Processes of that user in these groups count as the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pharoah_system.local_sockets import peer_credentials

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
REMEMBERED_SECONDS = 900.0
"""A sidecar asks for a new ticket every eight minutes, and the provider takes none that is older than this."""
MAX_OWNERS = 1024
"""Users with control groups that are remembered: more than any machine runs jobs at once."""
_PARENT, _TIMES = 1, slice(11, 15)
"""Columns of /proc/PID/stat behind the name of the program: the parent; user and system time of the process and of its
children that have ended (proc(5))."""
_TASK = re.compile(r"/task_\w+(?=/|$)", re.MULTILINE)
"""Slurm gives each task of a step a control group of its own (its cgroup/v1 and v2 plug-ins)."""


class Owner(NamedTuple):
    """Whose processes belong to one job."""

    user: int
    groups: str


class Use(NamedTuple):
    """What a process had computed at one moment."""

    parent: int
    seconds: float
    """The time of the process, and of its children that have ended."""


class KnownJobs:
    """The jobs that have asked for a ticket lately. Belongs to the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._asked_at: dict[Owner, float] = {}

    def ask(self, connected: socket.socket) -> None:
        """The process at the other end has asked for a ticket."""
        if (owner := owner_of(connected)) is not None:
            self._asked_at.pop(owner, None)
            self._asked_at[owner] = self._clock()
        while len(self._asked_at) > MAX_OWNERS:
            del self._asked_at[next(iter(self._asked_at))]

    def processes_of(self, owner: Owner) -> set[int]:
        """All processes of one job. It looks at every process of the node."""
        return set(_processes({owner}))

    def processes(self) -> Iterator[int]:
        """All processes of known jobs."""
        now = self._clock()
        owners = {owner for owner, asked_at in self._asked_at.items() if now - asked_at < REMEMBERED_SECONDS}
        yield from _processes(owners)


def owner_of(connected: socket.socket) -> Owner | None:
    """The job of the process at the other end, by its user and control groups; None when it has ended meanwhile."""
    peer = peer_credentials(connected)
    try:
        return Owner(peer.user, _groups(peer.process))
    except OSError:
        return None


def _processes(owners: Collection[Owner]) -> Iterator[int]:
    users = {owner.user for owner in owners}
    for folder in Path("/proc").iterdir() if owners else ():
        with contextlib.suppress(OSError, ValueError):
            process, user = int(folder.name), folder.stat().st_uid
            if user in users and Owner(user, _groups(process)) in owners:
                yield process


def _groups(process: int) -> str:
    return without_tasks(Path(f"/proc/{process}/cgroup").read_text())


def without_tasks(groups: str) -> str:
    """The control groups of a process (the text of /proc/PID/cgroup), the same for all tasks of a batch job's step."""
    return _TASK.sub("", groups)


def use_of(processes: Iterable[int], cpus: Iterable[int]) -> Mapping[int, Use]:
    """What processes that can run on no other cores than these have computed, by number.

    What a process that may run elsewhere has computed cannot be assigned to cores, so it is left out.
    """
    allowed, found = set(cpus), {}
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            if os.sched_getaffinity(process) <= allowed:
                columns = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                found[process] = Use(int(columns[_PARENT]), sum(map(int, columns[_TIMES])) / TICKS_PER_SECOND)
    return found


def sum_computed_seconds(before: Mapping[int, Use], after: Mapping[int, Use]) -> float:
    """What processes have computed between two readings, with those that have begun or ended meanwhile.

    The time of a process that has ended is added to that of its parent, which had not counted what came before.
    """
    went_on = sum(
        use.seconds - (before[process].seconds if process in before else 0.0) for process, use in after.items()
    )
    ended = sum(use.seconds for process, use in before.items() if process not in after and use.parent in after)
    return went_on - ended
