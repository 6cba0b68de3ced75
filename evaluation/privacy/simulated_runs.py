"""Simulated runs as the provider sees them: everything that reaches it of a run, by the group of what it belongs to.

Step times, devices and ends are simulated; what is sent of them is made by the code that is shipped: windows and levels
of the sidecar, the signals of the agent, the detectors behind a question for a validation, and the rules for an end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evaluation.privacy.behaviours import SECONDS, Behaviour
from evaluation.privacy.run_ends import draw_end
from evaluation.privacy.simulated_asks import asked_seconds
from evaluation.privacy.simulated_nodes import Activity, DeviceState, Shown, SimulatedNode, telemetry
from pharoah_protocol.reports import RankWindows
from pharoah_protocol.vocabulary import Attribution, EndState

Series = Mapping[str, list[float]]
"""Field to its values in order."""


@dataclass(frozen=True)
class SeenRun:
    """Everything that a provider sees of one run, besides what it knows anyway: node, ranks, begin and length."""

    reports: Series
    decision: Series
    end: Series
    asked: Series
    telemetry: Series
    node: Series
    """What a provider knows of its own node."""
    stays: Series
    """What stays on the node; for the control alone."""

    @property
    def fields(self) -> dict[str, list[float]]:
        """All that is sent."""
        return {**self.reports, **self.decision, **self.end, **self.asked, **self.telemetry}


GROUPS: Mapping[str, Callable[[SeenRun], Series]] = {
    "reported levels": lambda run: run.reports,
    "whether the node is taken": lambda run: run.decision,
    "end state and attribution": lambda run: run.end,
    "validations that were asked for": lambda run: run.asked,
    "trouble bits": lambda run: run.telemetry,
}


@dataclass(frozen=True)
class Job:
    """One run of an archetype, before a node is chosen for it."""

    behaviour: Behaviour
    activity: Activity
    reports: Series

    @classmethod
    def start(cls, behaviour: Behaviour, chance: random.Random) -> Job:
        """Run it; it steps as on a healthy node."""
        windows, steps, late = RankWindows(behaviour.plan), behaviour.steps(chance), behaviour.late_data(chance)
        now, grown = chance.uniform(3, 30), 1.0  # loading
        pauses = [(0.0, now)]
        step_levels, memory_levels, ended, comes_late = [], [], [], []
        for second in range(SECONDS):
            ended.append(list[float]())
            comes_late.append(late.low <= now < late.high)
            while now < second + 1:
                taken = next(steps)
                took = taken.seconds * (behaviour.load.late_data_ratio if late.low <= now < late.high else 1.0)
                now += took
                if taken.pause_seconds:
                    pauses.append((now - taken.pause_seconds, now))
                grown = 1 + behaviour.growth_per_minute * now / 60
                windows.add([int(took * 1e9)], int(1e9 * grown))
                ended[-1].append(took)
            step_levels.append(float(windows.now.step))
            memory_levels.append(float(windows.now.memory))
        works = _outside(pauses)
        return cls(
            behaviour, Activity(ended, works, comes_late), {"step levels": step_levels, "memory levels": memory_levels}
        )

    def seen(self, chance: random.Random, shown: Callable[[DeviceState], Shown], *, ailing: bool = False) -> SeenRun:
        """The run on one node of the fleet, or on an ailing one."""
        behaviour, load = self.behaviour, self.behaviour.load
        node = SimulatedNode.draw(behaviour, chance, ailing=ailing)
        states = list(node.states(behaviour, self.activity, chance))
        end = draw_end(load.heavy, behaviour.fails_ratio, chance)
        asked = asked_seconds(load, self.activity, states, shown, chance)
        return SeenRun(
            reports=self.reports,
            decision={"accept": [float(chance.random() < behaviour.accepts_ratio)]},
            end={
                **{f"ended as {state}": [float(end.state is state)] for state in EndState},
                **{f"attributed to {who}": [float(end.attribution is who)] for who in Attribution},
            },
            asked={
                "questions": [float(len(asked))],
                "first question": [float(min(asked) // 60 + 1) if asked else 0.0],
                "last question": [float(max(asked) // 60 + 1) if asked else 0.0],
            },
            telemetry=telemetry(states, shown),
            node={"weak cooling": [float(node.weak_cooling)], "little memory": [float(node.little_memory)]},
            stays={
                "memory waiting": [float(state.memory_waiting_percent) for state in states],
                "power": [load.power_ratio if works else 0.0 for works in self.activity.works],
            },
        )


def _outside(pauses: list[tuple[float, float]]) -> list[bool]:
    works = [True] * SECONDS
    for begin, end in pauses:
        for second in range(max(0, round(begin)), min(SECONDS, round(end))):
            works[second] = False
    return works
