"""All that a process has started, whatever it did to leave: sessions of its own, daemons, processes that start others
for as long as they live (Linux).

A daemon becomes a child of its nearest ancestor that adopts orphans (`parent_process.adopt_orphans`). So that ancestor
can find everything by going from children to their children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

MAX_SECONDS = 10.0
"""A family that does not hold still for this time is killed as it is found; one that lives on for as long again hangs
inside a device driver."""
_PAUSE_SECONDS = 0.002
_FIRST_IN_LINE = -20
"""The nice value that gets the most CPU time (sched(7)): a thousand processes that start others leave little."""


def descendants(pid: int) -> Iterator[int]:
    """The children of a process and theirs, zombies included."""
    parents = [pid]
    while parents:
        found = children(parents.pop())
        yield from found
        parents += found


def children(pid: int) -> list[int]:
    """The children of a process: those of each of its threads (proc_pid_task(5))."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - in a race with what starts processes
            with contextlib.suppress(OSError):
                found += map(int, _content(f"/proc/{pid}/task/{thread}/children").split())
    return found


def end_family(eldest: Callable[[], set[int]]) -> set[int]:
    """Kill the processes that `eldest` gives, now and later, with all that they have started, until none is left.
    Returns those that lived.

    Each is stopped before its children are looked for: a stopped process starts no other one, and keeps its place under
    a limit of processes. One that was about to end may have given its children to another meanwhile, so all are killed
    when two rounds have found the same ones. Zombies stay for their parents to wait for.
    """
    lived: set[int] = set()
    before: set[int] = set()
    deadline = time.monotonic() + MAX_SECONDS
    with _first_in_line():
        while (found := _stop(eldest() | before)) or before:  # those before may have lost the way to the eldest
            lived |= found
            if found == before or time.monotonic() > deadline:
                for pid in found:
                    _signal(pid, signal.SIGKILL)
                time.sleep(_PAUSE_SECONDS)
            if time.monotonic() > deadline + MAX_SECONDS:
                break
            before = found
    return lived


def _stop(eldest: set[int]) -> set[int]:
    """Stop processes with all that they have started, from the eldest to the youngest."""
    found: set[int] = set()
    waiting = list(eldest)
    while waiting:
        pid = waiting.pop()
        if pid not in found and lives(pid):
            found.add(pid)
            _signal(pid, signal.SIGSTOP)
        waiting += children(pid)
    return found


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return _state(pid) not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _state(pid: int) -> str:
    return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0].decode()


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above: half the time of a Path
        return file.read()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def _first_in_line() -> Iterator[None]:
    """The highest priority for the calling process, where it may have one."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST_IN_LINE)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
