"""Simulated nodes under simulated jobs: what their devices do in each second, and which trouble their agents send.

The devices are simulated, because this machine has neither GPUs nor links that fail: the kernel's pressure average, the
temperature of a GPU and errors of hardware. The bits are those of the signals that every agent has, read by its
telemetry from files and from a source of GPUs that show the simulated state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path
from typing import Any, NamedTuple, cast

from evaluation.privacy.behaviours import FULL_RATIO, SECONDS, Behaviour
from pharoah_provider.agent.kernel_log import KernelRecord
from pharoah_provider.agent.signals import AGENT_SIGNALS, _links, _memory, _pressure
from pharoah_provider.agent.signals._device_fields import DeviceField, ThrottleReason
from pharoah_provider.agent.signals._devices import devices_from
from pharoah_provider.agent.signals._xids import watching
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.agent.xid_catalogue import xid_catalogue
from pharoah_provider.agent.xid_events import XidEvents
from pharoah_provider.services.agent import TELEMETRY_PERIOD_SECONDS

WEAK_COOLING_RATIO, LITTLE_MEMORY_RATIO = 0.05, 0.05
"""How many nodes are too warm for a GPU at its power limit, and how many have less memory than jobs expect."""
BREAKS_RATIO = 0.01
"""How often a piece of hardware breaks during a run, or is broken when it begins. Published rates are a hundred times
smaller: 419 interruptions of a job in 54 days on 16,384 GPUs (Llama 3 Herd of Models, 2024, table 5)."""
AVERAGE_SECONDS = 60.0
"""The kernel's average of pressure (docs.kernel.org/accounting/psi.html)."""
FULL_WAITING_RATIO = 0.8
"""How much tasks wait for memory while more is used than the node has."""
LITTLE_MEMORY = 0.6
"""What a node with little memory has, as a share of what jobs expect."""
ROOM_CELSIUS, WARMING_SECONDS = 35.0, 45.0
GOOD_COOLING_CELSIUS, WEAK_COOLING_CELSIUS = 40.0, 75.0
"""By how much a GPU at its power limit becomes warmer than the room."""
DRIVER_CELSIUS, HARDWARE_CELSIUS, COOLED_CELSIUS = 85.0, 90.0, 85.0
"""Where the driver slows a GPU down, where its hardware does, and where the hardware ends that."""
PAUSE_POWER_RATIO, CAPPED_POWER_RATIO = 0.2, 0.95
"""What a GPU draws while its job pauses, and from where on its power limit slows it down."""
HARDWARE_XID = 79
"""The GPU has fallen off the bus."""


LEAVING = tuple(signal.name for signal in AGENT_SIGNALS if signal.leaves_node)
"""The trouble bits that an agent sends."""
SIMULATED = tuple(
    signal
    for signal in AGENT_SIGNALS
    if signal.leaves_node or signal.name in ("gpu_power_capped", "gpu_software_thermal_slowdown")
)
"""Signals that are read of simulated devices: those, and two that stay on the node and that a job is shown."""


class DeviceState(NamedTuple):
    """The devices of one node at one moment."""

    memory_waiting_percent: int
    """The kernel's average of the last minute."""
    throttle: ThrottleReason
    broken: frozenset[str]
    """Pieces of hardware that are broken, of BREAKABLE."""


BREAKABLE = ("gpu memory", "gpu rows", "gpu spare rows", "gpu", "memory", "power supply", "link")
GOOD_STATE = DeviceState(0, ThrottleReason(0), frozenset())


@dataclass(frozen=True)
class Activity:
    """What a job does in each second of a run."""

    steps: Sequence[Sequence[float]]
    """Seconds of the steps that ended in it."""
    works: Sequence[bool]
    """Whether it steps, and does not pause."""
    late: Sequence[bool]
    """Whether it waits for data that come late."""


@dataclass(frozen=True)
class SimulatedNode:
    """What is wrong with one node."""

    weak_cooling: bool = False
    little_memory: bool = False
    breaks: Mapping[str, int] = field(default_factory=dict)
    """The second at which hardware breaks; 0 where it is broken before."""

    @classmethod
    def draw(cls, behaviour: Behaviour, chance: random.Random, *, ailing: bool = False) -> SimulatedNode:
        """A node of a fleet. `ailing`: one with weak cooling and little memory, as all nodes of a bad provider are."""
        return cls(
            weak_cooling=chance.random() < WEAK_COOLING_RATIO or ailing,
            little_memory=chance.random() < LITTLE_MEMORY_RATIO or ailing,
            breaks=dict(_breaks(behaviour, chance)),
        )

    def states(self, behaviour: Behaviour, activity: Activity, chance: random.Random) -> Iterator[DeviceState]:
        """One state for each second of a run."""
        load, average, kept = behaviour.load, 0.0, exp(-1 / AVERAGE_SECONDS)
        has = LITTLE_MEMORY if self.little_memory else 1.0
        warms = WEAK_COOLING_CELSIUS if self.weak_cooling else GOOD_COOLING_CELSIUS
        celsius, slowed = ROOM_CELSIUS, False
        for second, works in enumerate(activity.works):
            used = behaviour.memory_ratio * (1 + behaviour.growth_per_minute * second / 60)
            waiting = FULL_WAITING_RATIO if used > has * FULL_RATIO else load.memory_waiting_ratio * chance.random() * 2
            average = kept * average + (1 - kept) * waiting * works
            power = load.power_ratio * chance.uniform(0.97, 1.03) if works else PAUSE_POWER_RATIO
            celsius += (ROOM_CELSIUS + warms * power * (0.5 if slowed else 1.0) - celsius) / WARMING_SECONDS
            slowed = celsius > (COOLED_CELSIUS if slowed else HARDWARE_CELSIUS)
            broken = frozenset(name for name, at in self.breaks.items() if second >= at)
            yield DeviceState(round(100 * average), _reasons(power, celsius, slowed, broken), broken)


def _breaks(behaviour: Behaviour, chance: random.Random) -> Iterator[tuple[str, int]]:
    """What a job uses more breaks more often."""
    uses = {"gpu": behaviour.load.power_ratio, "gpu memory": behaviour.memory_ratio, "memory": behaviour.memory_ratio}
    for name in BREAKABLE:
        if chance.random() < BREAKS_RATIO * 2 * uses.get(name, 0.5):
            yield name, max(0, chance.randrange(-SECONDS, SECONDS))


def _reasons(power: float, celsius: float, slowed: bool, broken: frozenset[str]) -> ThrottleReason:
    reasons = ThrottleReason(0)
    if power > CAPPED_POWER_RATIO:
        reasons |= ThrottleReason.POWER_CAP
    if celsius > DRIVER_CELSIUS:
        reasons |= ThrottleReason.SOFTWARE_THERMAL
    if slowed:
        reasons |= ThrottleReason.HARDWARE_SLOWDOWN | ThrottleReason.HARDWARE_THERMAL
    if "power supply" in broken:
        reasons |= ThrottleReason.HARDWARE_SLOWDOWN | ThrottleReason.POWER_BRAKE
    return reasons


Shown = Mapping[str, float]
"""Signal to its value; of several devices the largest."""


@contextmanager
def agent_signals(folder: Path) -> Iterator[Callable[[DeviceState], Shown]]:
    """Gives what the signals of an agent show of a state, those that stay on the node as well, while inside."""
    places = {(_pressure, "PRESSURE"): "pressure", (_links, "SYSFS"): "class", (_memory, "CONTROLLERS"): "mc"}
    before = {place: getattr(*place) for place in places}
    try:
        for place, name in places.items():
            setattr(*place, folder / name)
        yield cache(lambda state: _shown(folder, state))
    finally:
        for place, path in before.items():
            setattr(*place, path)


def _shown(folder: Path, state: DeviceState) -> Shown:
    for good in (True, False):  # a link is down only when it has been up
        _put(folder, state, link_up=good or "link" not in state.broken)
        with devices_from(_Gpus(state)), watching(_errors(state)):
            samples = Telemetry(lambda: 0.0, SIMULATED).sample(stays=True)
    found: dict[str, float] = {}
    for sample in samples:
        for name, value in sample.values.items():
            found[name] = max(value, found.get(name, 0.0))
    return found


def _put(folder: Path, state: DeviceState, *, link_up: bool) -> None:
    waiting = f"some avg10=0.00 avg60={state.memory_waiting_percent:.2f} avg300=0.00 total=0\n"
    files: dict[str, object] = {
        "pressure/memory": waiting,
        "mc/mc0/ue_count": int("memory" in state.broken),
        "class/net/simulated0/device/vendor": "0x1",
        "class/net/simulated0/flags": "0x1003",
        "class/net/simulated0/carrier": int(link_up),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(str(content))


@dataclass(frozen=True)
class _Gpus:
    """A source of one GPU in this state (`agent.signals._devices.DeviceSource`)."""

    state: DeviceState

    def read(self, field: DeviceField) -> Mapping[str, float]:
        broken = self.state.broken
        values = {
            DeviceField.THROTTLE_REASONS: int(self.state.throttle),
            DeviceField.UNCORRECTED_ERRORS: "gpu memory" in broken,
            DeviceField.ROWS_TO_REMAP: "gpu rows" in broken,
            DeviceField.ROWS_NOT_REMAPPED: "gpu spare rows" in broken,
        }
        return {"gpu0": float(values[field])} if field in values else {}


class _Log:
    """The kernel's log of a node whose GPU has broken, or has not."""

    def __init__(self, broken: bool) -> None:
        text = f"NVRM: Xid (PCI:0000:3b:00): {HARDWARE_XID}, GPU has fallen off the bus."
        self._records = [KernelRecord(1, 0.0, text)] if broken else []

    def records(self) -> list[KernelRecord]:
        records, self._records = self._records, []
        return records


def _errors(state: DeviceState) -> XidEvents:
    log = cast(Any, _Log("gpu" in state.broken))
    return XidEvents(log, xid_catalogue(), lambda: {"0000:3b:00": "gpu0"}, lambda: 0.0)


def telemetry(states: Sequence[DeviceState], shown: Callable[[DeviceState], Shown]) -> dict[str, list[float]]:
    """The trouble bits of a run as they are sent, one value for every two seconds."""
    samples = [shown(state) for state in states[:: round(TELEMETRY_PERIOD_SECONDS)]]
    return {name: [sample.get(name, 0.0) for sample in samples] for name in LEAVING}
