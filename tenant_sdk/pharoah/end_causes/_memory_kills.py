"""How often the kernel has killed processes because memory was short, from files that everybody may read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pharoah_system.memory_group import CGROUPS, PROC, groups_of, number_in, numbers_in


class MemoryKills(NamedTuple):
    """Processes killed by the kernel's out-of-memory killer."""

    own: int
    """In the control group of this process and those below it."""
    at_own_limit: int
    """Times that this control group, or one that holds it, has reached its own limit of memory."""
    host: int
    """On the whole machine."""

    def since(self, before: MemoryKills) -> MemoryKills:
        """What has happened since `before`."""
        return MemoryKills(*(now - then for now, then in zip(self, before, strict=True)))


NO_KILLS = MemoryKills(0, 0, 0)


class _Counts(NamedTuple):
    """What one control group counts."""

    kills: int
    at_limit: int


def memory_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> MemoryKills:
    """The counts up to now (cgroups(7), proc_vmstat(5)); 0 where the machine does not count."""
    own = _own_group(proc, cgroups)
    return MemoryKills(own.kills, own.at_limit, numbers_in(proc / "vmstat").get("oom_kill", 0))


def _own_group(proc: Path, cgroups: Path) -> _Counts:
    """The counts of the control group of this process, in version 2 of control groups or in version 1."""
    groups = list(groups_of("self", "memory", proc, cgroups))
    for number, group in enumerate(groups):
        if found := _counts(group, groups[number + 1 :]) or _counts_of_first_version(group, groups[number + 1 :]):
            return found
    return _Counts(0, 0)


def _counts(group: Path, above: Sequence[Path]) -> _Counts | None:
    """The counts of a group of version 2; None where there are none. `memory.events` counts the groups below, too, and
    the limit that is reached may be that of a group above: a scheduler sets it for the whole job."""
    if not (events := numbers_in(group / "memory.events")):
        return None
    reached = sum(numbers_in(each / "memory.events.local").get("oom", 0) for each in above)
    return _Counts(events.get("oom_kill", 0), events.get("oom", 0) + reached)


def _counts_of_first_version(group: Path, above: Sequence[Path]) -> _Counts | None:
    """The counts of a group of version 1; None where there are none. How often a limit was reached is counted by each
    group for itself, also where the kernel then found memory to free."""
    if not (control := numbers_in(group / "memory.oom_control")):
        return None
    reached = sum(number_in(each / "memory.failcnt") or 0 for each in (group, *above))
    return _Counts(control.get("oom_kill", 0), reached)
