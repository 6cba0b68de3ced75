"""How often the kernel has killed processes because memory was short, from files that everybody may read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


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
    return MemoryKills(own.kills, own.at_limit, _numbers(proc / "vmstat").get("oom_kill", 0))


def _own_group(proc: Path, cgroups: Path) -> _Counts:
    """The counts of the control group of this process, in version 2 of control groups or in version 1."""
    first_version = cgroups / "memory"
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            found = _counts(cgroups, cgroups / path.lstrip("/"))
        elif "memory" in controllers.split(","):
            found = _counts_of_first_version(first_version, first_version / path.lstrip("/"))
        else:
            continue
        if found is not None:
            return found
    # Inside a container, whose files begin at its own group.
    inside = _counts(cgroups, cgroups) or _counts_of_first_version(first_version, first_version)
    return inside or _Counts(0, 0)


def _counts(top: Path, group: Path) -> _Counts | None:
    """The counts of a group of version 2; None where there are none. `memory.events` counts the groups below, too, and
    the limit that is reached may be that of a group above: a scheduler sets it for the whole job."""
    if not (events := _numbers(group / "memory.events")):
        return None
    above = sum(_numbers(each / "memory.events.local").get("oom", 0) for each in _above(top, group))
    return _Counts(events.get("oom_kill", 0), events.get("oom", 0) + above)


def _counts_of_first_version(top: Path, group: Path) -> _Counts | None:
    """The counts of a group of version 1; None where there are none. How often a limit was reached is counted by each
    group for itself, also where the kernel then found memory to free."""
    if not (control := _numbers(group / "memory.oom_control")):
        return None
    counts = [_text(each / "memory.failcnt").strip() for each in (group, *_above(top, group))]
    return _Counts(control.get("oom_kill", 0), sum(int(count) for count in counts if count.isdecimal()))


def _above(top: Path, group: Path) -> list[Path]:
    """The groups that hold this one, up to the one of the folder `top`."""
    return [each for each in group.parents if each == top or top in each.parents]


def _numbers(path: Path) -> dict[str, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
