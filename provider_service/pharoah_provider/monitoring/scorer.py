"""From the reports of runs to risk, rank by rank: signals in, a number out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pharoah_learning.release import DegradationModel, Release
from pharoah_learning.signals import features
from pharoah_provider.domain import Report
from pharoah_provider.fleet import Fleet

KEPT_WINDOWS = 16
"""Windows of a rank that features may look at; today's need the last five."""

REMEMBERED_RISKS = 4096
"""Risks that are remembered by the windows that led to them: healthy ranks all report the same."""

NOT_SCORED = float("nan")
"""The risk of a window that says nothing."""


def mask_by_orders(fleet: Fleet, node: str, reports: Sequence[Report]) -> list[bool]:
    """For each report, whether an order of ours ran on the host of the node meanwhile."""
    began = min((one.ended_at - one.span_seconds for one in reports), default=0.0)
    ended = max((one.ended_at for one in reports), default=0.0)
    if not fleet.was_probed(node, began, ended):  # nearly always, and it costs one look instead of one for each report
        return [False] * len(reports)
    return [fleet.was_probed(node, one.ended_at - one.span_seconds, one.ended_at) for one in reports]


class Scorer:
    """Keeps the newest windows of every rank, and the model of the release in force."""

    def __init__(self) -> None:
        self._windows: dict[bytes, dict[int, deque[Report]]] = {}
        self._model = DegradationModel.threshold_only()
        self._risks: dict[tuple[tuple[float, float], ...], float] = {}
        """By the values of the windows, oldest first: risk depends on nothing else."""

    def use(self, release: Release) -> None:
        """Score with the model of this release from now on, if it has one."""
        if release.degradation is not None:
            self._model = release.degradation
            self._risks.clear()

    def score(self, run_id: bytes, report: Report) -> float:
        """The risk after this window of its rank. A window that could not be stored is scored again when it is reported
        again: it and later ones take the places of those that were scored before."""
        windows = self._windows.setdefault(run_id, {}).setdefault(report.rank, deque(maxlen=KEPT_WINDOWS))
        while windows and windows[-1].row_number >= report.row_number:
            windows.pop()
        windows.append(report)
        values = tuple((window.step_ratio, window.memory_ratio) for window in windows)
        if (known := self._risks.get(values)) is None:
            if len(self._risks) >= REMEMBERED_RISKS:
                self._risks.clear()
            known = self._risks[values] = self._model.score(features([window.window for window in windows]))
        return known

    def risky(self, score: float) -> bool:
        return score > self._model.threshold

    def newest_ratio(self, run_id: bytes) -> float:
        """The step time of the slowest rank now, over the run's own baseline."""
        newest = [windows[-1].step_ratio for windows in self._windows.get(run_id, {}).values()]
        return max(newest, default=1.0)

    def forget(self, run_id: bytes) -> None:
        self._windows.pop(run_id, None)
