"""Steps take longer than they did, and the job is not the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._slow_causes import BENCHMARKED, TOO_SMALL, Cause, Change, Explanation, explain
from pharoah.local_alerts._step_change import CHANGE, StepChange
from pharoah.local_alerts._step_windows import Moment, RankSteps, Window, own_seconds, typical_window

MIN_RATIO = 1.05
"""Steps that take less than so many times as long are no reason for an alert."""
PATIENT_WINDOWS = 8
"""For so long after a change its cause is looked for, 40 s, where it may show yet: a neighbour may begin slowly. Time
with micro-benchmarks beside the job does not count: what is known of it is too little to rule a cause out."""
ENOUGH_WINDOWS = 3
"""So many windows without micro-benchmarks beside the job say what happens without those that are with them. After the
first window of a change, it takes at least so many until they are the usual ones."""
COMPARED_WINDOWS = 5
"""The newest windows that are compared with those before the change: a checkpoint, a compilation or late data of some
seconds is in one or two of them, so it is not what is typical of them, and explains nothing."""
MIN_COMPUTED_RATIO = 0.01
"""A smaller share of a step counts as this one: the processor time of so little has too few digits."""
MIN_SECONDS = 1e-9
"""Keeps logarithms and quotients finite."""
NEWEST_WINDOWS = 2
"""Where so many of the newest windows are slower than what is typical of a change, another one has begun. One window
may be a pause."""
MAX_BEFORE = 60
"""Windows before the change that are compared with the newest ones: five minutes."""


@dataclass
class _Rank:
    """One rank: its windows, and whether its steps take longer, by three measures."""

    steps: RankSteps = field(default_factory=RankSteps)
    typical: StepChange = field(default_factory=StepChange)
    """The median step."""
    mean: StepChange = field(default_factory=StepChange)
    """The mean step, which shows what slows one step of many."""
    stretched: StepChange = field(default_factory=StepChange)
    """The mean step over what it computes. Where cores are now faster, now slower, step times are noisy, and this shows
    what a step waits or is queued for."""

    @property
    def _changes(self) -> tuple[StepChange, ...]:
        return self.typical, self.mean, self.stretched

    @property
    def raised(self) -> bool:
        return any(one.raised for one in self._changes)

    @property
    def doubted(self) -> bool:
        """Whether something speaks for a change."""
        return any(one.doubted for one in self._changes)

    @property
    def known(self) -> bool:
        return all(one.known for one in self._changes)

    def since(self) -> int | None:
        """The number of the window at which the change began."""
        begun = [one.since for one in self._changes if one.raised and one.since is not None]
        return min(begun, default=None)

    def find_change(self) -> int:
        """The number of the window at which the change was noticed."""
        return min(one.raised_at for one in self._changes if one.raised)

    def add(self, window: Window) -> None:
        """One more window that is complete."""
        stretched = window.took / max(window.computed, MIN_COMPUTED_RATIO * window.took, MIN_SECONDS)
        for change, value in zip(self._changes, (window.median, window.took, stretched), strict=True):
            add = change.add_least if window.measured else change.add
            add(log(max(value, MIN_SECONDS)))

    def change(self, since: int) -> Change | None:
        """Its typical window before a change, and the one now, which begins with the change; None where nothing is
        known of before. Windows before are of the time in which the usual step was the same. Windows with
        micro-benchmarks beside the job count only while there are few others since the change."""
        windows = list(self.steps.windows)
        left_out = self.steps.count - len(windows)
        first = max(0, since - 1 - left_out)
        usual = max(one.usual_since for one in self._changes) - left_out
        before, after = _plain(windows[max(0, first - MAX_BEFORE, usual) : first]), windows[first:]
        if len(plain := _plain(after)) >= ENOUGH_WINDOWS:
            after = plain
        if not before or not after:
            return None
        now = typical_window([*before, *after][-COMPARED_WINDOWS:])
        return Change(typical_window(before), now._replace(began_at=windows[first].began_at))

    def goes_on(self, change: Change) -> bool:
        """Whether steps became slower again since a change. What explains the change does not explain that."""
        newest = min(window.took for window in list(self.steps.windows)[-NEWEST_WINDOWS:])
        return newest > exp(CHANGE) * change.after.took

    def plain_since(self, since: int) -> int:
        """How many windows without micro-benchmarks there are since a window."""
        return len(_plain(list(self.steps.windows)[-(self.steps.count - since) - 1 :]))

    def accept(self, since: int) -> None:
        """The windows after a window are the usual ones from now on."""
        for change in self._changes:
            change.accept(since)


@dataclass
class _SlowSteps:
    """All ranks of a job on this machine."""

    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _holds: Condition | None = None

    @property
    def wants_lateness(self) -> bool:
        """While something speaks for a change."""
        return self._holds is None and any(rank.doubted for rank in self._ranks.values())

    def look(self, view: View) -> Iterator[Condition]:
        own = own_seconds(view)
        for number, process in view.processes.items():
            rank = self._ranks.setdefault(number, _Rank())
            rank.steps.note_step(view.steps.get(number, ()))
            if window := rank.steps.look(Moment(view.at, process, view.machine, own, view.measuring)):
                rank.add(window)
        self._judge(view)
        if self._holds:
            yield self._holds

    def _judge(self, view: View) -> None:
        raised = {number: rank for number, rank in self._ranks.items() if rank.raised}
        if not raised:
            self._holds = None
        elif self._holds is None:
            ages = [rank.steps.count - since for rank in raised.values() if (since := rank.since()) is not None]
            noticed = max(rank.steps.count - rank.find_change() for rank in raised.values())
            self._explain(view, max(ages, default=0), noticed)

    def _explain(self, view: View, age: int, noticed: int) -> None:
        """Look for the cause of a change that began `age` windows ago, and was noticed `noticed` windows ago."""
        found = {number: rank.change(rank.steps.count - age) for number, rank in self._ranks.items() if rank.known}
        changes = {number: change for number, change in found.items() if change is not None}
        ratio = max((change.after.took / change.before.took for change in changes.values()), default=1.0)
        explanation = explain(changes, view.lateness, view.distributed) if ratio >= MIN_RATIO else TOO_SMALL
        goes_on = any(self._ranks[number].goes_on(change) for number, change in changes.items())
        explanation = explanation._replace(undecided=explanation.undecided or goes_on)
        seen = max((rank.plain_since(rank.steps.count - age) for rank in self._ranks.values()), default=0)
        if explanation.cause is not None:
            began = min(change.after.began_at for change in changes.values())
            shown = _condition(explanation.cause, explanation, changes, ratio)
            self._holds = replace(shown, since=view.unix - (view.at - began))
        elif explanation.undecided and noticed < ENOUGH_WINDOWS:
            return  # in a noisy run, what began long ago is noticed only now, and the next windows may show its cause
        elif seen > (PATIENT_WINDOWS if explanation.undecided else ENOUGH_WINDOWS):
            for rank in self._ranks.values():  # the job does other work now: this is how it steps from now on
                rank.accept(rank.steps.count - age)


def _plain(windows: Sequence[Window]) -> list[Window]:
    """The windows without micro-benchmarks beside the job."""
    return [window for window in windows if not window.measured]


def _condition(cause: Cause, explanation: Explanation, changes: dict[int, Change], ratio: float) -> Condition:
    rank = explanation.late_rank
    shown = rank if rank is not None else max(changes, key=lambda number: changes[number].own)
    before, after = changes[shown]
    parts = ", ".join(
        f"{name} {1e3 * old:.3g} to {1e3 * new:.3g} ms"
        for name, old, new in (
            ("computing", before.computed, after.computed),
            ("queued", before.queued, after.queued),
            ("waiting", before.waited, after.waited),
        )
    )
    late = f", and the other ranks wait for rank {rank}" if rank is not None else ""
    least = "at least " if after.measured > 0 else ""
    return Condition(
        key="slow_steps",
        resource=cause.resource,
        fault_domain=cause.fault_domain,
        what=f"steps take {least}{ratio:.2f} times as long as before{late}",
        where=f"this node, rank {rank}" if rank is not None else "this node",
        likely=cause.likely,
        action=cause.action,
        evidence=f"rank {shown}, per step: {parts}",
        since=0.0,
        step_ratio=ratio,
        validation=cause.fault_domain in BENCHMARKED,
    )


DETECTOR = Detector(
    "slow_steps",
    "steps that take 1.1 times as long as before, or more, for a reason outside of the job; which rank is late, and "
    "what it lacks, from the time that its main thread computes, is queued for a core, and waits",
    _SlowSteps,
    judges_steps=True,
)
