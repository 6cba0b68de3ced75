"""A file system that the job uses fills up, and will be full before long; its alert lasts while it is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._exhaustion import Forecast, Supply
from pharoah.local_alerts._words import clock_span, size
from pharoah_protocol.vocabulary import Attribution, Resource

FULL_SECONDS = 1.0
"""A file system whose forecast has ended is full while it has less left than was used up in so many seconds: what is
written fails, so that nothing is used up any more."""


@dataclass
class _FileSystem:
    """The free space of one file system."""

    folder: str
    holds: Condition | None = None
    """What held at the newest look at which it answered."""
    _supply: Supply = field(default_factory=Supply)
    _rate: float = 0.0
    """What was used up per second by the newest forecast."""

    def look(self, view: View, left: int) -> Condition | None:
        """What holds now, with so many bytes left."""
        self._supply.add(view.at, float(left))
        if (found := self._supply.forecast()) is not None:
            self._rate = found.rate
            self.holds = _will_be_full(self.folder, view, found, left)
        elif self.holds is None or left >= FULL_SECONDS * self._rate:
            self.holds = None
        return self.holds


@dataclass
class _Disk:
    """All file systems that the job uses."""

    wants_lateness = False
    _file_systems: dict[str, _FileSystem] = field(default_factory=dict)

    def look(self, view: View) -> Iterator[Condition]:
        for folder, left in view.machine.free_bytes.items():
            known = self._file_systems.setdefault(folder, _FileSystem(folder))
            if (holds := known.look(view, left)) is not None:
                yield holds
        for folder in view.machine.silent_folders & self._file_systems.keys():
            if (held := self._file_systems[folder].holds) is not None:  # silence is no sign of room
                yield held


def _will_be_full(folder: str, view: View, found: Forecast, left: int) -> Condition:
    return Condition(
        key=f"disk:{folder}",
        resource=Resource.STORAGE,
        fault_domain=Attribution.UNKNOWN,
        what=f"the file system of {folder} will be full in {clock_span(found.seconds)}"
        f" ({clock_span(found.earliest_seconds)} to {clock_span(found.latest_seconds)})",
        where=folder,
        likely="files are written there and none are deleted: checkpoints, logs, or those of other jobs",
        action="delete old checkpoints, or write them elsewhere, before the next one fails",
        evidence=f"{size(found.rate * 60)} less in a minute, over {clock_span(found.span_seconds)}; {size(left)} left",
        since=view.unix - found.span_seconds,
        failure_from=view.unix + found.earliest_seconds,
        failure_until=view.unix + found.latest_seconds,
    )


DETECTOR = Detector(
    "disk",
    "a file system that the job uses fills up steadily: when it will be full",
    _Disk,
    of_machine=True,
)
