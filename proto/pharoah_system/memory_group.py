"""The memory that the control groups of a process still leave it (cgroups(7), versions 1 and 2).

A job that fits into its limit alone must fit beside us, so whatever we start in its group asks here first, and leaves
in time. Amounts are in bytes. Where nothing limits a group, or its files cannot be read, there is nothing to keep to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60
"""Limits from here on limit nothing: control groups of version 1 write a number near 2^63 for none."""
_CACHES_OF_FIRST_VERSION = ("total_inactive_file", "total_active_file")
_LIMITS = (
    ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", _CACHES_OF_FIRST_VERSION),
    ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes", _CACHES_OF_FIRST_VERSION),  # with swap
)
"""The files of a limit and of its use, and what of the use is taken back, in both versions."""
FIRST_KILLED = 1000
"""The highest `oom_score_adj` (proc_pid_oom_score_adj(5)): such a process is killed before any other one of its group,
unless that one holds more than the whole limit: pages of libraries count for it, and not for the group."""


class GroupRoom(NamedTuple):
    """What the tightest of a process's control groups still leaves."""

    free_bytes: int
    limit_bytes: int
    kills_all: bool
    """Whether the kernel kills every process of a group at its limit, and not the one that it chooses
    (`memory.oom.group`)."""

    @property
    def usable_bytes(self) -> int:
        """What somebody who is not the job may take or keep. Where the kernel kills all, twice as much must be free:
        nobody can be killed first."""
        return self.free_bytes // (2 if self.kills_all else 1)


class GroupLimit(NamedTuple):
    """One limit on a process, and where the kernel says what is used of it."""

    limit_bytes: int
    use: Path
    stat: Path
    caches: tuple[str, ...]
    """Lines of `stat`: what of the use is taken back before anybody is killed."""
    kills_all: bool


def group_room(pid: int | str = "self", proc: Path = PROC, cgroups: Path = CGROUPS) -> GroupRoom | None:
    """The room of a process now; None where no group limits it."""
    return room_within(limits_of(pid, proc, cgroups))


def limits_of(pid: int | str = "self", proc: Path = PROC, cgroups: Path = CGROUPS) -> list[GroupLimit]:
    """All limits on a process, from the innermost group upwards.

    The kernel kills at the limit of one group, and looks for `memory.oom.group` from the group of the process that it
    chose up to that one. So a group with the flag counts for its own limit and for all limits above it.
    """
    found = []
    kills_all = False
    for group in groups_of(pid, "memory", proc, cgroups):
        kills_all |= _text(group / "memory.oom.group").strip() == "1"
        for limit_file, use_file, caches in _LIMITS:
            limit = number_in(group / limit_file)
            if limit is not None and limit < UNLIMITED_BYTES:
                found.append(GroupLimit(limit, group / use_file, group / "memory.stat", caches, kills_all))
    return found


def room_within(limits: Sequence[GroupLimit]) -> GroupRoom | None:
    """The tightest room that some limits leave; None without a limit. Quicker than looking for the limits again.

    Before it kills, the kernel takes back pages of files, also those in use, and what it keeps for itself and can give
    up. Files in memory (tmpfs) and pages that are locked are not among them: their pages are counted as anonymous, or
    as unevictable. It also moves pages to swap, but a job that waits for its pages is harmed as well, so free swap does
    not count as room.
    """
    rooms = []
    for one in limits:
        if (use := number_in(one.use)) is not None:
            counted = numbers_in(one.stat)
            held = use - sum(counted.get(cache, 0) for cache in one.caches)
            free = max(0, min(one.limit_bytes, one.limit_bytes - held))
            rooms.append(GroupRoom(free, one.limit_bytes, one.kills_all))
    return min(rooms, key=lambda room: room.usable_bytes, default=None)


def be_killed_first(pid: int | str = "self") -> None:
    """Let the kernel kill this process, and what it starts, before any other one of its group. Raises nothing: where
    it cannot be set, the kernel chooses the largest."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:  # noqa: PTH123 - /proc
        file.write(str(FIRST_KILLED))


def groups_of(pid: int | str, controller: str, proc: Path = PROC, cgroups: Path = CGROUPS) -> Iterator[Path]:
    """The folders of the control group of a process and of those above, in version 2 or for one controller."""
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number != "0" and controller not in controllers.split(","):
            continue
        root = cgroups if number == "0" else cgroups / controllers
        if number != "0" and not root.is_dir():
            root = cgroups / controller  # the kernel may list `cpuacct,cpu` where the folder is `cpu,cpuacct`
        folder = root / path.lstrip("/")
        if not folder.is_dir():
            folder = root  # inside a container, whose files begin at its own group
        while folder.is_relative_to(root):
            yield folder
            folder = folder.parent


def numbers_in(path: Path) -> dict[str, int]:
    """The lines `name number` of a file of the kernel; empty where it cannot be read."""
    words = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) >= 2 and pair[1].isdecimal()}


def number_in(path: Path) -> int | None:
    """The number that a file of the kernel holds; None where it holds none."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
