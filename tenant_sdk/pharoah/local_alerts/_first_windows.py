"""The first windows of all ranks of this machine: what a job is like from its first steps on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import View
from pharoah.local_alerts._step_change import FIRST_WINDOWS
from pharoah.local_alerts._step_windows import Moment, RankSteps, Window, own_seconds, typical_window


@dataclass
class FirstWindows:
    """Collects windows until every rank has enough of them."""

    _ranks: dict[int, RankSteps] = field(default_factory=dict)

    def add(self, view: View) -> bool:
        """One more look; whether it completed a window. What goes on while the provider measures beside the job does
        not count."""
        complete, own = False, own_seconds(view)
        for number, process in view.processes.items():
            steps = self._ranks.setdefault(number, RankSteps())
            steps.note_step(view.steps.get(number, ()))
            window = steps.look(Moment(view.at, process, view.machine, own, view.measuring))
            complete |= window is not None and not window.measured
        return complete

    def typical(self) -> Mapping[int, Window] | None:
        """The typical window of each rank among its newest ones; None until every rank has enough of them."""
        plain = {rank: [one for one in steps.windows if not one.measured] for rank, steps in self._ranks.items()}
        newest = {rank: windows[-FIRST_WINDOWS:] for rank, windows in plain.items()}
        if not newest or any(len(some) < FIRST_WINDOWS for some in newest.values()):
            return None
        return {rank: typical_window(some) for rank, some in newest.items()}
