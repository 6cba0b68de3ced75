"""The sidecar leaves before its memory is what the job lacks.

It lives in the control group of the job, so what it takes is taken from the job's limit. The kernel kills it first
(`memory_group.be_killed_first`), but a job that grows slowly shall not see the kernel kill at all, and in a group that
is killed as a whole nobody is first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from pharoah_system.memory_group import GroupRoom, group_room
from pharoah_system.process_family import children, descendants, end_family
from pharoah_system.process_memory import own_bytes

LOOK_SECONDS = 1.0
"""How often the room is read, in microseconds of work."""
CLOSE_LOOK_SECONDS = 0.02
"""How often where the kernel would kill the whole group and the room is less than CLOSE_BYTES: a job that fills its
memory for the first time takes about 1 GB/s of one core, 20 MB in this time."""
CLOSE_BYTES = 1 << 30


class Leaving(NamedTuple):
    """What the room was when it became too narrow."""

    room: GroupRoom
    own_bytes: int

    def __str__(self) -> str:
        free, own = self.room.free_bytes >> 20, self.own_bytes >> 20
        return f"{free} MiB of the memory group are left, and watching takes {own} MiB; the job goes on without it"


def is_too_narrow(room: GroupRoom | None, own_bytes: int) -> bool:
    """Whether somebody of this size must leave now."""
    return room is not None and room.usable_bytes < own_bytes


class MemoryWatch:
    """Looks at the room of this process in a thread, which no other work of the process delays."""

    def __init__(self, pid: int, leave: Callable[[Leaving], None]) -> None:
        """`leave` is called once, in the thread."""
        self._pid, self._leave = pid, leave
        self._ended = threading.Event()

    def begin(self) -> None:
        threading.Thread(target=self._look, name="pharoah-memory", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _look(self) -> None:
        seconds = 0.0
        while not self._ended.wait(seconds):
            room = group_room(self._pid)
            if room is None:
                seconds = LOOK_SECONDS  # a limit may be set later
                continue
            if is_too_narrow(room, size := self._size_without_children(room)):
                self._leave(Leaving(room, size))
                return
            close = room.kills_all and room.free_bytes < CLOSE_BYTES
            seconds = CLOSE_LOOK_SECONDS if close else LOOK_SECONDS

    def _size_without_children(self, room: GroupRoom) -> int:
        """Bytes of this process alone. What it has started, such as a micro-benchmark, ends first."""
        size = own_bytes(self._pid)
        if is_too_narrow(room, size + sum(map(own_bytes, descendants(self._pid)))):
            end_family(lambda: set(children(self._pid)))
        return size
