"""Processors and sensors of the machine: how often they were too hot, their clocks, and temperatures (sysfs)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pharoah_provider.agent.signals._files import folders, number_of, text_of
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading, device_name

CPUS = Path("/sys/devices/system/cpu")
THERMAL = Path("/sys/class/thermal")
MAX_CPUS = 32
"""Processors that are looked at, spread evenly: all cores of a package share its cooling, and each file costs up to
50 us."""
_CPU = re.compile(r"cpu\d+")
_MILLIDEGREES = 1000
_PLAUSIBLE_CELSIUS = (1.0, 150.0)
"""Sensors that are not connected read zero, less or far more."""


def _cpus() -> list[Path]:
    """Up to MAX_CPUS of the processors, evenly spread over their numbers."""
    try:
        names = [path.name for path in CPUS.iterdir() if _CPU.fullmatch(path.name)]
    except OSError:
        return []
    names.sort(key=lambda name: int(name.removeprefix("cpu")))
    step = -(-len(names) // MAX_CPUS) or 1
    return [CPUS / name for name in names[::step]]


def throttle_count() -> Iterator[Reading]:
    """How often cores and their packages were slowed down because they were too hot, since the boot.

    All cores of a package show the same count of it, so the largest one of each is added to those of the cores.
    """
    cores, packages = list[int](), dict[int, int]()
    for cpu in _cpus():
        if (core := number_of(cpu / "thermal_throttle/core_throttle_count")) is not None:
            cores.append(core)
            package = number_of(cpu / "topology/physical_package_id") or 0
            count = number_of(cpu / "thermal_throttle/package_throttle_count") or 0
            packages[package] = max(count, packages.get(package, 0))
    if not cores:
        raise NotOnThisNode(f"{CPUS}/cpu*/thermal_throttle: these processors do not count it")
    yield Reading(sum(cores) + sum(packages.values()), parts=len(cores) + len(packages))


def clock_ratio() -> Iterator[Reading]:
    """The mean clock of the processors over the highest one that they have."""
    ratios = []
    for cpu in _cpus():
        now, most = number_of(cpu / "cpufreq/scaling_cur_freq"), number_of(cpu / "cpufreq/cpuinfo_max_freq")
        if now is not None and most:
            ratios.append(now / most)
    if not ratios:
        raise NotOnThisNode(f"{CPUS}/cpu*/cpufreq: the kernel does not control these clocks, as in a virtual machine")
    yield Reading(sum(ratios) / len(ratios))


def temperatures() -> Iterator[Reading]:
    """Degrees Celsius of each thermal zone, by its type and number."""
    low, high = _PLAUSIBLE_CELSIUS
    found = False
    for zone in folders(THERMAL, "thermal_zone"):
        raw = number_of(zone / "temp")
        if raw is not None and low <= raw / _MILLIDEGREES <= high:
            found = True
            kind = (text_of(zone / "type") or "zone").strip()
            yield Reading(raw / _MILLIDEGREES, device_name(f"{kind}-{zone.name.removeprefix('thermal_zone')}"))
    if not found:
        raise NotOnThisNode(f"{THERMAL}: this node has no thermal zones, as in a virtual machine")
