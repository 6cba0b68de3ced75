"""What a control group may use and has used: a job in a container sees its own limits, not those of the machine.

Version 2 of control groups is documented in docs.kernel.org/admin-guide/cgroup-v2, version 1 in
docs.kernel.org/admin-guide/cgroup-v1. The folder is that of one group, such as
`/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7`; under version 1 each controller has a folder of its own, and both
may be read and put together with `merged`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from pharoah_provider.agent.signals._files import number_of, text_of

_NANOSECONDS, _MICROSECONDS = 1e9, 1e6
_UNLIMITED_BYTES = 1 << 62
"""Version 1 writes the largest multiple of a page below 2^63 where there is no limit."""


@dataclass(frozen=True, kw_only=True)
class ControlGroup:
    """Use and limits of one control group; None for what it does not control."""

    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """None as well where there is no limit."""
    out_of_memory_kills: int | None = None
    cpu_seconds: float | None = None
    cpu_limit_cores: float | None = None
    throttled_seconds: float | None = None
    """Time in which its tasks had to wait because the group had used its share of the processors."""

    @property
    def memory_ratio(self) -> float | None:
        """Memory in use over the limit; None without a limit."""
        if self.memory_bytes is None or not self.memory_limit_bytes:
            return None
        return self.memory_bytes / self.memory_limit_bytes

    def merged(self, other: ControlGroup) -> ControlGroup:
        """This one, with what only the other has: two controllers of version 1."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return ControlGroup(**{name: getattr(other, name) if value is None else value for name, value in own.items()})


def read_control_group(path: Path) -> ControlGroup:
    """Read one control group of either version, passively. What cannot be read is None; never raises OSError."""
    return _version_2(path) if (path / "cgroup.controllers").exists() else _version_1(path)


def _version_2(path: Path) -> ControlGroup:
    cpu = _table(path / "cpu.stat")
    quota = (text_of(path / "cpu.max") or "").split()
    return ControlGroup(
        memory_bytes=number_of(path / "memory.current"),
        memory_limit_bytes=number_of(path / "memory.max"),
        out_of_memory_kills=_table(path / "memory.events").get("oom_kill"),
        cpu_seconds=_scaled(cpu.get("usage_usec"), _MICROSECONDS),
        cpu_limit_cores=_cores(*map(_whole, quota)) if len(quota) == 2 else None,
        throttled_seconds=_scaled(cpu.get("throttled_usec"), _MICROSECONDS),
    )


def _version_1(path: Path) -> ControlGroup:
    limit = number_of(path / "memory.limit_in_bytes")
    return ControlGroup(
        memory_bytes=number_of(path / "memory.usage_in_bytes"),
        memory_limit_bytes=None if limit is None or limit >= _UNLIMITED_BYTES else limit,
        out_of_memory_kills=_table(path / "memory.oom_control").get("oom_kill"),
        cpu_seconds=_scaled(number_of(path / "cpuacct.usage"), _NANOSECONDS),
        cpu_limit_cores=_cores(number_of(path / "cpu.cfs_quota_us"), number_of(path / "cpu.cfs_period_us")),
        throttled_seconds=_scaled(_table(path / "cpu.stat").get("throttled_time"), _NANOSECONDS),
    )


def _table(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    lines = [line.split() for line in (text_of(file) or "").splitlines()]
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _cores(quota: int | None, period: int | None) -> float | None:
    """Processors that a group may use at once; None without a quota, which is `max` or -1."""
    return quota / period if quota is not None and quota > 0 and period else None


def _scaled(count: int | None, per_second: float) -> float | None:
    return None if count is None else count / per_second
