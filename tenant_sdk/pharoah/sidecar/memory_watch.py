"""The sidecar leaves before its memory is what the job lacks.

It lives in the control group of the job, so what it takes is taken from the job's limit. The kernel is asked to kill it
first (`memory_group.be_killed_first`), but that does not save every job. The kernel compares what processes hold,
including pages of libraries that do not count for the group, so it may choose a job that has mapped more of them than
its group has room. While the sidecar dies its pages are not free yet, and the kernel may kill once more. In a group
that is killed as a whole nobody is first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pharoah_system.memory_group import GroupLimit, GroupRoom, limits_of, room_within
from pharoah_system.process_family import children, descendants, end_family
from pharoah_system.process_memory import own_bytes

LOOK_SECONDS = 1.0
"""How often the room is read at least, and limits are looked for again."""
CLOSE_LOOK_SECONDS = 0.03
"""How often at most: a look reads two files for each limit, and the children of this process."""
GROWTH_BYTES_PER_SECOND = 4 << 30
"""So much a job may take meanwhile. A core that fills memory for the first time takes about 1 GB/s."""
MARGIN_BYTES = 32 << 20
"""What is free beside the sidecar's own size when it leaves: what a core takes in one look and while it leaves."""


class Leaving(NamedTuple):
    """What the room was when it became too narrow."""

    room: GroupRoom
    own_bytes: int

    def __str__(self) -> str:
        free, own = self.room.free_bytes >> 20, self.own_bytes >> 20
        return f"{free} MiB of the memory group are left, and watching takes {own} MiB; the job goes on without it"


def is_too_narrow(room: GroupRoom | None, own_bytes: int) -> bool:
    """Whether somebody of this size must leave now."""
    return room is not None and room.usable_bytes < own_bytes + MARGIN_BYTES


def seconds_to_next_look(room: GroupRoom, own_bytes: int) -> float:
    """How long the job needs at least until somebody of this size must leave."""
    spare = room.usable_bytes - own_bytes - MARGIN_BYTES
    return min(LOOK_SECONDS, max(CLOSE_LOOK_SECONDS, spare / GROWTH_BYTES_PER_SECOND))


class MemoryWatch:
    """Looks at the room of this process in a thread, which no other work of the process delays."""

    def __init__(self, pid: int, leave: Callable[[Leaving], None]) -> None:
        """`leave` is called once, in the thread."""
        self._pid, self._leave = pid, leave
        self._begun, self._ended = False, threading.Event()

    def begin(self) -> None:
        """Look from now on; the first call counts. A job begins after its dry run, which is to end for want of memory
        before this does (`dryrun.parent`)."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._look, name="pharoah-memory", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _look(self) -> None:
        seconds, limits, found_at = 0.0, list[GroupLimit](), -LOOK_SECONDS
        while not self._ended.wait(seconds):
            if time.monotonic() - found_at >= LOOK_SECONDS:
                limits, found_at = limits_of(self._pid), time.monotonic()
            room = room_within(limits)
            if room is None:
                seconds = LOOK_SECONDS  # a limit may be set later
                continue
            if is_too_narrow(room, size := self._size_without_children(room)):
                self._leave(Leaving(room, size))
                return
            seconds = seconds_to_next_look(room, size)

    def _size_without_children(self, room: GroupRoom) -> int:
        """Bytes of this process alone. What it has started, such as a micro-benchmark, ends first."""
        size = own_bytes(self._pid)
        if is_too_narrow(room, size + sum(map(own_bytes, descendants(self._pid)))):
            end_family(lambda: set(children(self._pid)))
        return size
