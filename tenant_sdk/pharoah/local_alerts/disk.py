"""A file system that the job uses fills up, and will be full before long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._exhaustion import Supply
from pharoah.local_alerts._words import clock_span, size
from pharoah_protocol.vocabulary import Attribution, Resource


@dataclass
class _Disk:
    """The free space of each file system."""

    wants_lateness = False
    _supplies: dict[str, Supply] = field(default_factory=dict)

    def look(self, view: View) -> Iterator[Condition]:
        for folder, left in view.machine.free_bytes.items():
            supply = self._supplies.setdefault(folder, Supply())
            supply.add(view.at, float(left))
            if (found := supply.forecast()) is not None:
                yield Condition(
                    key=f"disk:{folder}",
                    resource=Resource.STORAGE,
                    fault_domain=Attribution.UNKNOWN,
                    what=f"the file system of {folder} will be full in {clock_span(found.seconds)}"
                    f" ({clock_span(found.earliest_seconds)} to {clock_span(found.latest_seconds)})",
                    where=folder,
                    likely="files are written there and none are deleted: checkpoints, logs, or those of other jobs",
                    action="delete old checkpoints, or write them elsewhere, before the next one fails",
                    evidence=f"{size(found.rate * 60)} less in a minute, over {clock_span(found.span_seconds)};"
                    f" {size(left)} left",
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
