"""What a node reports about itself: trouble, never use and never amounts (`pharoah_provider.agent.signals`)."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pharoah_provider.agent.signals import AGENT_SIGNALS, AgentSignal, Reading

log = logging.getLogger("pharoah.agent")

_LONGEST_NAME = 63
_OTHER_CHARACTERS = re.compile("[^a-z0-9_.-]")


def device_name(text: str) -> str:
    """The name of a device as telemetry has it: lower-case letters, digits, and a few signs."""
    return _OTHER_CHARACTERS.sub("_", text.lower())[:_LONGEST_NAME]


@dataclass(frozen=True)
class Sample:
    """One reading of one device; an empty `device` is the node itself."""

    sampled_at: float
    """Unix seconds."""
    device: str
    values: Mapping[str, float]
    """Name of a signal to its value."""


@dataclass
class Telemetry:
    """Samples the signals of one node. `clock` gives unix seconds."""

    clock: Callable[[], float] = time.time
    signals: Iterable[AgentSignal] = field(default_factory=lambda: AGENT_SIGNALS)
    _failed: set[str] = field(default_factory=set, init=False)
    """Signals that could not be read, so that each is reported once."""

    def sample(self, *, stays: bool = False) -> list[Sample]:
        """One sample per device. A signal that cannot be read is absent. `stays`: also the signals that do not leave
        the node."""
        now = self.clock()
        values: dict[str, dict[str, float]] = defaultdict(dict)
        for signal in self.signals:
            if signal.leaves_node or stays:
                for reading in self._readings(signal):
                    values[reading.device][signal.name] = reading.value
        return [Sample(now, device, readings) for device, readings in values.items()]

    def _readings(self, signal: AgentSignal) -> list[Reading]:
        try:
            return [replace(one, device=device_name(one.device)) for one in signal.read()]
        except Exception as error:  # noqa: BLE001 - a driver, or code of another distribution
            if signal.name not in self._failed:
                log.warning("the signal %s cannot be read: %s: %s", signal.name, type(error).__name__, error)
            self._failed.add(signal.name)
            return []
