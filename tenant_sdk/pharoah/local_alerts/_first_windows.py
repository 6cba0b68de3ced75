"""The first windows of all ranks of this machine: what a job is like from its first steps on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import View
from pharoah.local_alerts._step_change import FIRST_WINDOWS
from pharoah.local_alerts._step_windows import Moment, RankSteps, Window, mean_window


@dataclass
class FirstWindows:
    """Collects windows until every rank has enough of them."""

    _ranks: dict[int, RankSteps] = field(default_factory=dict)

    def add(self, view: View) -> None:
        """One more look. What goes on while the provider measures beside the job does not count."""
        for number, process in view.processes.items():
            steps = self._ranks.setdefault(number, RankSteps())
            if view.measuring:
                steps.discard()
            else:
                steps.stepped(view.steps.get(number, ()))
                steps.look(Moment(view.at, process, view.machine, 0.0))

    def means(self) -> Mapping[int, Window] | None:
        """The mean window of each rank; None until they are complete."""
        windows = {rank: list(steps.windows) for rank, steps in self._ranks.items()}
        if not windows or any(len(some) < FIRST_WINDOWS for some in windows.values()):
            return None
        return {rank: mean_window(some) for rank, some in windows.items()}
