"""A rank has been stopped, so that all ranks wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah_protocol.vocabulary import Attribution, Resource


@dataclass
class _Stopped:
    """Since when each rank is stopped, in unix seconds."""

    wants_lateness = False
    _since: dict[int, float] = field(default_factory=dict)

    def look(self, view: View) -> Iterator[Condition]:
        for rank, process in view.processes.items():
            if not process.stopped:
                self._since.pop(rank, None)
                continue
            since = self._since.setdefault(rank, view.unix)
            yield Condition(
                key=f"stopped:{rank}",
                resource=Resource.COMPUTE,
                fault_domain=Attribution.PLATFORM,
                what=f"rank {rank} has been stopped, and the other ranks wait for it",
                where=f"this node, rank {rank}",
                likely="a scheduler, a debugger or a person has sent it SIGSTOP",
                action="let it go on (SIGCONT) before the collectives of the other ranks run into their time limit",
                evidence="the state of the process is T",
                since=since,
            )


DETECTOR = Detector(
    "stopped",
    "a rank that was stopped by a signal, as a scheduler or a debugger does it",
    _Stopped,
)
