"""The last minutes and the last day of all signals of a node, in the memory of its agent.

Each second has one sample for a quarter of an hour, and each minute of the clock one for a day: the mean of a level,
the sum of what a counter has counted. Features of signals are computed from the minutes
(`pharoah_protocol.signal_features`). Nothing of it leaves the node by itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pharoah_protocol.signal_features import MINUTES, SignalHistory, SignalKind
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.agent.signals import AgentSignal
from pharoah_provider.agent.telemetry import Sample, Telemetry

log = logging.getLogger("pharoah.agent")

KEPT_SECONDS = 900
"""Samples at the full rate: what has led to a failure within the last quarter of an hour."""
KEPT_MINUTES = MINUTES.long
"""One day of minutes, as far as features look back."""
MINUTE_SECONDS = 60
MAX_SERIES = 512
"""Signals times devices that are kept: a node with 8 GPUs, 12 ports, 8 memory controllers and 10 disks has about 400.
Each takes 19 kB for its samples, and at most 46 kB for the history of its features when it never has the same value
twice; so 512 take at most 33 MB, and 14 MB when most of them rest."""
_PORTS_AND_DISKS = ("disk_", "fabric_", "network_")
"""Signals of devices of which a host may have dozens begin so: 64 ports of the fabric have 512 counters. Together they
have at most half of MAX_SERIES, so that they leave room for GPUs, memory and processors. A server with 8 GPUs has
about 170 signals of its ports and disks (`evaluation/ingest/large_node.py`)."""
_MISSING = math.nan


class Series(NamedTuple):
    """One signal of one device; an empty device is the node itself."""

    signal: str
    device: str


class SeriesFeatures(NamedTuple):
    """The features of one signal of one device."""

    series: Series
    kind: SignalKind
    features: dict[str, float]
    """By name, as `pharoah_protocol.signal_features.FEATURES` lists them."""
    minutes: int
    """Whole minutes in which it was measured."""


@dataclass
class _Kept:
    """The samples of one series. Rings are indexed by the number of the second or minute since 1970."""

    kind: SignalKind
    seconds: array[float] = field(default_factory=lambda: array("d", [_MISSING]) * KEPT_SECONDS)
    minutes: array[float] = field(default_factory=lambda: array("d", [_MISSING]) * KEPT_MINUTES)
    history: SignalHistory = field(init=False)
    total: float = 0.0
    """Sum of the samples of the minute that goes on."""
    samples: int = 0
    newest: float = _MISSING
    newest_second: int = -1
    measured_minutes: int = 0
    _last_minute: float | None = None
    _features: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self.history = SignalHistory(self.kind)

    def add(self, second: int, value: float) -> None:
        self.seconds[second % KEPT_SECONDS] = self.newest = value
        self.newest_second = second
        self.total += value
        self.samples += 1

    def end_minute(self, minute: int) -> None:
        """Close the minute. A value that stays the same is one object in the history, which is most of its memory."""
        value = None if not self.samples else self.total / (self.samples if self.kind is SignalKind.GAUGE else 1)
        self.total, self.samples = 0.0, 0
        self.measured_minutes += value is not None
        self._last_minute = self._last_minute if value == self._last_minute else value
        self.minutes[minute % KEPT_MINUTES] = _MISSING if value is None else value
        self.history.add(self._last_minute)
        self._features = None

    def features(self) -> dict[str, float]:
        """They change once a minute, and take half a millisecond."""
        if self._features is None:
            self._features = self.history.features()
        return self._features


class SignalBuffer:
    """Keeps the samples of one node. `run` samples until it is cancelled; the other methods answer from any thread.

    Memory is bounded by MAX_SERIES: of a node with more signals, those that come later are not kept, and the log says
    so once. Ports and disks have half of it at most.
    """

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float] = time.time) -> None:
        """`telemetry` is read by this buffer alone. `clock` gives unix seconds; it may jump."""
        self._telemetry, self._clock = telemetry, clock
        self._kinds = {signal.name: signal.kind for signal in telemetry.signals}
        self._periods = {signal.name: signal.period_seconds for signal in telemetry.signals}
        self._kept: dict[Series, _Kept] = {}
        self._read_at: dict[str, float] = {}
        """When each signal was read last."""
        self._second = self._minute = -1
        self._began = -1
        """The first second that was sampled."""
        self._ports_and_disks = 0
        """How many of the kept series are theirs."""
        self._full = set[str]()
        """What the log has said that there is no room for."""
        self._problem = ""
        """The newest reason why a second was not sampled, so that each is logged once."""
        self._lock = threading.Lock()

    async def run(self) -> None:
        """Sample once in each second of the clock. A driver that takes its time delays this task and nothing else."""
        while True:
            await asyncio.sleep(1.0 - self._clock() % 1.0)
            try:
                await in_own_thread(self.sample)
            except Exception as error:
                if str(error) != self._problem:
                    log.exception("the signals of a second were not kept")
                self._problem = str(error)

    def sample(self) -> None:
        """Take one sample of all signals that are due. Signals of a second that has a sample already wait."""
        now = self._clock()
        second = int(now)
        if second == self._second:
            return
        samples = self._telemetry.sample(stays=True, wanted=lambda signal: self._due(signal, now))
        with self._lock:
            self._move_to(second)
            for sample in samples:
                for name, value in sample.values.items():
                    if (kept := self._series(Series(name, sample.device))) is not None:
                        kept.add(second, value)

    def newest(self, device: str = "") -> dict[str, float]:
        """Name to the newest value of each signal of a device. A counter has what its last reading has counted. What
        was not read when it was due, as of a device that is gone, is absent."""
        with self._lock:
            return {
                series.signal: kept.newest
                for series, kept in self._kept.items()
                if series.device == device and self._second - kept.newest_second <= 2 * self._periods[series.signal]
            }

    def devices(self) -> list[str]:
        """All devices that have a signal; the empty name is the node itself."""
        with self._lock:
            return sorted({series.device for series in self._kept})

    def since(self, unix_seconds: float) -> list[Sample]:
        """Samples of each second from then on, at most KEPT_SECONDS back, the oldest first."""
        with self._lock:
            first = max(math.ceil(unix_seconds), self._second - KEPT_SECONDS + 1, self._began)
            seconds = range(first, self._second + 1)
            return [one for at in seconds for one in self._row(float(at), lambda kept: kept.seconds, at)]

    def minutes_since(self, unix_seconds: float) -> list[Sample]:
        """Whole minutes of the clock that began then or later, at most KEPT_MINUTES back, the oldest first. A sample
        has the time at which its minute began."""
        with self._lock:
            begin = max(math.ceil(unix_seconds / MINUTE_SECONDS), self._minute - KEPT_MINUTES)
            first = max(begin, self._began // MINUTE_SECONDS)
            minutes = range(first, self._minute)
            return [
                one for at in minutes for one in self._row(float(at * MINUTE_SECONDS), lambda kept: kept.minutes, at)
            ]

    def features(self, wanted: Callable[[Series], bool] = lambda _: True) -> list[SeriesFeatures]:
        """Features of the series for which `wanted` is true, of the whole minutes so far."""
        with self._lock:
            return [
                SeriesFeatures(series, kept.kind, kept.features(), kept.measured_minutes)
                for series, kept in self._kept.items()
                if wanted(series)
            ]

    def _due(self, signal: AgentSignal, now: float) -> bool:
        """Whether a signal's period has passed; also after the clock was set back."""
        since = now - self._read_at.get(signal.name, -math.inf)
        if 0 <= since < signal.period_seconds - 0.5:  # half a second early is better than a second late
            return False
        self._read_at[signal.name] = now
        return True

    def _move_to(self, second: int) -> None:
        """Empty the places of all seconds since the last sample, and close the minutes that have passed.

        A clock that was set back, or more than a day ahead, begins anew: two samples of one moment would contradict.
        """
        if self._second < 0 or second < self._second or second - self._second > KEPT_MINUTES * MINUTE_SECONDS:
            self._keep({})
            self._began, self._second, self._minute = second, second - 1, second // MINUTE_SECONDS
        for passed in range(max(self._second + 1, second - KEPT_SECONDS + 1), second + 1):
            for kept in self._kept.values():
                kept.seconds[passed % KEPT_SECONDS] = _MISSING
        for minute in range(self._minute, second // MINUTE_SECONDS):
            for kept in self._kept.values():
                kept.end_minute(minute)
        if self._minute < second // MINUTE_SECONDS:
            oldest = second - KEPT_MINUTES * MINUTE_SECONDS
            self._keep({series: kept for series, kept in self._kept.items() if kept.newest_second >= oldest})
        self._second, self._minute = second, second // MINUTE_SECONDS

    def _series(self, series: Series) -> _Kept | None:
        """What is kept of a series; None where there is no room for another one."""
        if series not in self._kept:
            if lacking := self._lacking_room(series):
                if lacking not in self._full:
                    log.warning("this node has more than %s; further ones are not kept", lacking)
                self._full.add(lacking)
                return None
            self._kept[series] = _Kept(self._kinds[series.signal])
            self._ports_and_disks += _is_of_port_or_disk(series)
        return self._kept[series]

    def _keep(self, kept: dict[Series, _Kept]) -> None:
        self._kept, self._ports_and_disks = kept, sum(map(_is_of_port_or_disk, kept))

    def _lacking_room(self, series: Series) -> str:
        """What there is no room for when this series comes; empty where there is room."""
        if len(self._kept) >= MAX_SERIES:
            return f"{MAX_SERIES} signals of devices"
        if _is_of_port_or_disk(series) and self._ports_and_disks >= MAX_SERIES // 2:
            return f"{MAX_SERIES // 2} signals of ports and disks"
        return ""

    def _row(self, moment: float, ring: Callable[[_Kept], array[float]], number: int) -> Iterator[Sample]:
        """One sample per device that has a value at this second or minute."""
        values: dict[str, dict[str, float]] = defaultdict(dict)
        for series, kept in self._kept.items():
            places = ring(kept)
            if not math.isnan(value := places[number % len(places)]):
                values[series.device][series.signal] = value
        for device, found in values.items():
            yield Sample(moment, device, found)


def _is_of_port_or_disk(series: Series) -> bool:
    return series.signal.startswith(_PORTS_AND_DISKS)
