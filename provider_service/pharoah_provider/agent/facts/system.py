"""The operating system and how it runs the processors."""

from __future__ import annotations

import os
from pathlib import Path

from pharoah_provider.agent.facts._group import FactGroup, join_values, text_of

SYSFS, CPUINFO = Path("/sys/devices/system"), Path("/proc/cpuinfo")


def _read() -> dict[str, str]:
    policies = sorted(SYSFS.glob("cpu/cpufreq/policy*"))
    numa_nodes = len(list(SYSFS.glob("node/node[0-9]*")))
    return {
        "kernel": os.uname().release,
        "microcode": _microcode(),
        "governor": join_values(text_of(policy / "scaling_governor") for policy in policies),
        "clock_limit_khz": join_values(text_of(policy / "scaling_max_freq") for policy in policies),
        "numa_nodes": str(numa_nodes) if numa_nodes else "",
    }


def _microcode() -> str:
    """The version of the processors; they all have the same in a machine that works."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found = {line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == "microcode"}
    return ", ".join(sorted(found))


FACTS = FactGroup(
    name="system",
    help="kernel, microcode, governor and highest clock of the processors, NUMA nodes (procfs and sysfs)",
    facts=("kernel", "microcode", "governor", "clock_limit_khz", "numa_nodes"),
    read=_read,
)
