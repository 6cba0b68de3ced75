"""Ranks have been stopped, so that the others wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah_protocol.vocabulary import Attribution, Resource


@dataclass
class _Stopped:
    """Since when a rank is stopped, in unix seconds; 0 while none is. Who stops a job stops all of its ranks, so they
    are one alert."""

    wants_lateness = False
    _since: float = 0.0

    def look(self, view: View) -> Iterator[Condition]:
        stopped = sorted(rank for rank, process in view.processes.items() if process.stopped)
        if not stopped:
            self._since = 0.0
            return
        self._since = self._since or view.unix
        others_wait = view.distributed and (len(stopped) < len(view.processes) or len(stopped) == 1)
        ranks = f"rank{'s' * (len(stopped) > 1)} {', '.join(map(str, stopped))}"
        if others_wait:
            what = f"{ranks} stopped, and the other ranks wait"
        else:
            what = "all ranks of the job on this machine are stopped" if len(stopped) > 1 else "the job is stopped"
        limit = " before the collectives of the other ranks run into their time limit" if others_wait else ""
        yield Condition(
            key="stopped",
            resource=Resource.COMPUTE,
            fault_domain=Attribution.PLATFORM,
            what=what,
            where=f"this node, {ranks}",
            likely="a scheduler, a debugger or a person has sent SIGSTOP",
            action=f"let it go on (SIGCONT){limit}",
            evidence="the state of the process is T",
            since=self._since,
        )


DETECTOR = Detector(
    "stopped",
    "a rank that was stopped by a signal, as a scheduler or a debugger does it",
    _Stopped,
)
