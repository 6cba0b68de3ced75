"""Attackers of the monitoring: from everything that a run reports, which archetype is it?

Step times of archetypes are simulated (own mean, noise from one step to the next or noise that lasts, pauses, memory
and its growth). The reports about them are made by the code that is shipped: windows, levels, one report per second,
plans for the half of the archetypes that the provider knows. The price is measured too: when slowdowns are reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

from evaluation.figures import Figures
from pharoah_learning.monitoring_plans import plan_for
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.reports import RankWindows

ARCHETYPES = 25
WEIGHTS = [1 / (rank + 1) for rank in range(ARCHETYPES)]
SECONDS = 1800
STALLING_RATIO = 0.97
"""Share of the node's memory above which its tasks wait for memory."""
SLOWED_RATIO, SLOWED_SECONDS = 1.5, 90
TYPICAL_DEVIATION = 0.6745
"""Median distance from the middle of a normal distribution, in standard deviations."""
Floats = NDArray[np.float64]
Run = dict[str, list[float]]
"""Field to values."""


@dataclass(frozen=True)
class Behaviour:
    """How an archetype's steps behave on a healthy node."""

    step_seconds: float
    noise_ratio: float
    """Standard deviation of a step, relative to the mean."""
    correlation: float
    """Correlation of one step with the next."""
    pause_every: int
    pause_seconds: float
    memory_ratio: float
    """Share of the node's memory at the beginning."""
    growth_per_minute: float
    known: bool
    """Whether the provider has learned a plan for it."""
    accepts_ratio: float
    """How often its tenant takes the offered node."""
    fails_ratio: float

    @property
    def plan(self) -> MonitoringPlan:
        """The plan in its row; the plain one for an archetype without a row."""
        return plan_for(TYPICAL_DEVIATION * self.noise_ratio) if self.known else PLAIN

    def steps(self, chance: random.Random) -> Iterator[float]:
        """Seconds of one step after the other, without end."""
        deviation, fresh = 0.0, sqrt(1 - self.correlation**2)
        for number in count(1):
            deviation = self.correlation * deviation + fresh * chance.gauss()
            paused = self.pause_every and number % self.pause_every == 0
            yield self.step_seconds * max(0.3, 1 + self.noise_ratio * deviation) + self.pause_seconds * bool(paused)


def behaviours(chance: random.Random) -> list[Behaviour]:
    """Small models with steps of 20 ms to large ones of 3 s. All stay within the memory of their node."""
    return [_behaviour(chance, chance.choice([0.0, 0.0, 0.0, 0.01])) for _ in range(ARCHETYPES)]


def _behaviour(chance: random.Random, growth_per_minute: float) -> Behaviour:
    return Behaviour(
        step_seconds=0.02 * 150 ** chance.random(),
        noise_ratio=0.004 * 75 ** chance.random(),
        correlation=chance.choice([0.0, 0.5, 0.9]),
        pause_every=chance.choice([0, 100, 400]),
        pause_seconds=chance.uniform(0.5, 15),
        memory_ratio=chance.uniform(0.1, STALLING_RATIO / (1 + growth_per_minute * SECONDS / 60)),
        growth_per_minute=growth_per_minute,
        known=chance.random() < 0.5,
        accepts_ratio=chance.uniform(0.85, 1.0),
        fails_ratio=chance.uniform(0.01, 0.15),
    )


def healthy(behaviour: Behaviour, chance: random.Random) -> Run:
    """A healthy run, as the provider sees it."""
    windows, steps = RankWindows(behaviour.plan), behaviour.steps(chance)
    now, grown = chance.uniform(3, 30), 1.0  # loading
    step_levels, memory_levels, stalled = [], [], []
    for second in range(SECONDS):
        while now < second + 1:
            took = next(steps)
            now += took
            grown = 1 + behaviour.growth_per_minute * now / 60
            windows.add([int(took * 1e9)], int(1e9 * grown))
        stalled.append(float(behaviour.memory_ratio * grown > STALLING_RATIO))
        step_levels.append(float(windows.now.step))
        memory_levels.append(float(windows.now.memory))
    return {
        "step_levels": step_levels,
        "memory_levels": memory_levels,
        "accept": [float(chance.random() < behaviour.accepts_ratio)],
        "state": [float(chance.random() < behaviour.fails_ratio)],
        "telemetry.memory_stalled": stalled,
    }


def slowed(behaviour: Behaviour, chance: random.Random) -> Run:
    """Reports of a run from the moment its node becomes slower, some time after the run has its baseline."""
    windows, steps = RankWindows(behaviour.plan), behaviour.steps(chance)
    while not windows.add([int(next(steps) * 1e9)], 10**9):
        pass  # it has no baseline yet
    for _ in range(chance.randrange(100)):
        windows.add([int(next(steps) * 1e9)], 10**9)
    now, levels = 0.0, []
    for second in range(SLOWED_SECONDS):
        while now < second + 1:
            took = SLOWED_RATIO * next(steps)
            now += took
            windows.add([int(took * 1e9)], 10**9)
        levels.append(float(windows.now.step))
    return {"step_levels": levels}


def with_reports(figures: Figures, chance: random.Random, worlds: int, runs: int) -> None:
    """How much better than the prior: each field alone and all of them, in the world of archetypes where most leaks."""
    found = [_advantages(behaviours(chance), chance, runs) for _ in range(worlds)]
    figures.details["reports"] = [{"together": together, **alone} for together, alone in found]
    value, alone = max(((max(together, *alone.values()), alone) for together, alone in found), key=lambda pair: pair[0])
    half = 1.96 * sqrt(0.25 / (runs / 2))
    leaking = max(alone, key=lambda name: alone[name])
    interval = f"+-{half:.3f} n={runs // 2}, worst of {worlds}; most: {leaking}"
    figures.add("provider_advantage_with_reports", value, "<= 0.05", value <= 0.05, interval)


def _advantages(known: list[Behaviour], chance: random.Random, runs: int) -> tuple[float, dict[str, float]]:
    """The advantage from all fields together, and from each alone."""
    asked = chance.choices(range(ARCHETYPES), WEIGHTS, k=runs)
    seen = [healthy(known[rank], chance) for rank in asked]
    fields = list(seen[0])
    alone = {name: _advantage([_summary(run, [name]) for run in seen], asked) for name in fields}
    return _advantage([_summary(run, fields) for run in seen], asked), alone


def slowdowns(figures: Figures, chance: random.Random, runs: int) -> None:
    """How many slowdowns are reported, and how soon; and what a provider learns by slowing its own node."""
    known = behaviours(chance)
    asked = chance.choices(range(ARCHETYPES), WEIGHTS, k=runs)
    seen = [slowed(known[rank], chance) for rank in asked]
    first = [next((at + 1 for at, level in enumerate(run["step_levels"]) if level > 0), None) for run in seen]
    waits = [seconds for seconds in first if seconds is not None]
    figures.add(
        "slowdown_reported_ratio", len(waits) / runs, interval=f"{SLOWED_RATIO}x, within {SLOWED_SECONDS} s, n={runs}"
    )
    figures.add("slowdown_reported_p50_seconds", median(waits), interval=f"n={len(waits)}")
    advantage = _advantage([_summary(run, ["step_levels"]) for run in seen], asked)
    figures.add("provider_advantage_slowing_its_node", advantage, interval=f"{SLOWED_RATIO}x, n={runs // 2}")


def _advantage(rows: list[list[float]], asked: list[int]) -> float:
    """The better of two attackers over the prior alone: trained on one half of the runs, tested on the other.

    One is a vote of the 15 nearest neighbours, the other a linear classifier.
    """
    x, y, half = np.array(rows), np.array(asked), len(asked) // 2
    x = (x - x[:half].mean(axis=0)) / (x[:half].std(axis=0) + 1e-9)
    near = [np.argsort(((x[:half] - row) ** 2).sum(axis=1))[:15] for row in x[half:]]
    voted = np.array([np.argmax(np.bincount(y[:half][chosen], minlength=ARCHETYPES)) for chosen in near])
    x = np.hstack([x, np.ones((len(x), 1))])
    targets = np.eye(ARCHETYPES)[y[:half]]
    weights = np.linalg.solve(x[:half].T @ x[:half] + np.eye(x.shape[1]), x[:half].T @ targets)
    scored = np.argmax(x[half:] @ weights, axis=1)
    best = max(float((guesses == y[half:]).mean()) for guesses in (voted, scored))
    return max(0.0, best - float((y[half:] == 0).mean()))


def _summary(run: Run, names: list[str]) -> list[float]:
    """Statistics of each field: mean, spread, how often it changes, extremes, first and share of non-zero values."""
    measures: list[Callable[[Floats], float]] = [
        lambda v: float(v.mean()),
        lambda v: float(v.std()),
        lambda v: float((np.diff(v) != 0).mean()) if len(v) > 1 else 0.0,
        lambda v: float(v.max()),
        lambda v: float(v.min()),
        lambda v: float(np.argmax(v != 0)),
        lambda v: float((v != 0).mean()),
    ]
    return [measure(np.array(run[name])) for name in names for measure in measures]
