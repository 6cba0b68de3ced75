"""What a node reports about itself: trouble, never use and never amounts (`pharoah_provider.agent.signals`)."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf, isnan

from pharoah_protocol.signal_features import SignalKind
from pharoah_provider.agent.counter_increments import CounterKey, NodeIncrements
from pharoah_provider.agent.signals import AGENT_SIGNALS, AgentSignal, NotOnThisNode, Reading

log = logging.getLogger("pharoah.agent")


@dataclass(frozen=True)
class Sample:
    """One reading of one device; an empty `device` is the node itself."""

    sampled_at: float
    """Unix seconds."""
    device: str
    values: Mapping[str, float]
    """Name of a signal to its value; of a counter, what was counted since the sample before."""


@dataclass
class Telemetry:
    """Samples the signals of one node. `clock` gives unix seconds.

    Each reader of a node has one of its own, because increments of counters are what is new for that reader. Samples
    may be taken in any thread.
    """

    clock: Callable[[], float] = time.time
    signals: Iterable[AgentSignal] = field(default_factory=lambda: AGENT_SIGNALS)
    _increments: NodeIncrements = field(default_factory=NodeIncrements, init=False)
    _failed: set[str] = field(default_factory=set, init=False)
    """Signals that could not be read, so that each is reported once."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def sample(self, *, stays: bool = False, wanted: Callable[[AgentSignal], bool] = lambda _: True) -> list[Sample]:
        """One sample per device. A signal that cannot be read is absent, and so is a counter that is read for the first
        time. `stays`: also the signals that do not leave the node. `wanted`: only those for which it is true."""
        with self._lock:
            now = self.clock()
            values: dict[str, dict[str, float]] = defaultdict(dict)
            for signal in self.signals:
                if (signal.leaves_node or stays) and wanted(signal):
                    for reading in self._readings(signal):
                        if (value := self._value(signal, reading)) is not None:
                            values[reading.device][signal.name] = value
            return [Sample(now, device, readings) for device, readings in values.items()]

    def for_another_reader(self) -> Telemetry:
        """The same signals for a reader of its own, whose counters begin with its first sample."""
        return Telemetry(self.clock, self.signals)

    def _value(self, signal: AgentSignal, reading: Reading) -> float | None:
        if isinf(reading.value):
            return None  # no device has measured it, and a provider would drop what was sampled with it
        if signal.kind is SignalKind.GAUGE:
            return reading.value
        if isnan(reading.value):
            return None  # nothing can be counted from it
        key = CounterKey(signal.name, reading.device, reading.parts)
        return self._increments.count_since(key, signal.counter_bits, reading.value)

    def _readings(self, signal: AgentSignal) -> list[Reading]:
        try:
            return list(signal.read())
        except NotOnThisNode:
            return []
        except Exception as error:  # noqa: BLE001 - a driver, or code of another distribution
            if signal.name not in self._failed:
                log.warning("the signal %s cannot be read: %s: %s", signal.name, type(error).__name__, error)
            self._failed.add(signal.name)
            return []
