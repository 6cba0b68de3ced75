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
    """Times that this control group has reached its own limit of memory, and an allocation was about to fail."""
    host: int
    """On the whole machine."""

    def since(self, before: MemoryKills) -> MemoryKills:
        """What has happened since `before`."""
        return MemoryKills(*(now - then for now, then in zip(self, before, strict=True)))


NO_KILLS = MemoryKills(0, 0, 0)


def memory_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> MemoryKills:
    """The counts up to now (cgroups(7), proc_vmstat(5)); 0 where the machine does not count."""
    own = _own_group(proc, cgroups)
    return MemoryKills(own.get("oom_kill", 0), own.get("oom", 0), _numbers(proc / "vmstat").get("oom_kill", 0))


def _own_group(proc: Path, cgroups: Path) -> dict[str, int]:
    """The counts of the control group of this process, in version 2 of control groups or in version 1."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            found = _numbers(cgroups / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found = _numbers(cgroups / "memory" / path.lstrip("/") / "memory.oom_control")
        else:
            continue
        if found:
            return found
    return _numbers(cgroups / "memory.events")  # inside a container, whose files begin at its own group


def _numbers(path: Path) -> dict[str, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
