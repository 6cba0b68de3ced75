"""Attackers of the monitoring: from everything a run tells while it runs, which archetype is it?

Step times of archetypes are simulated (own mean, noise, pauses, drift, growth of memory); what is told of them is made
by the code that is shipped: windows, levels, the rhythm of one row a second, plans.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from evaluation.figures import Figures
from pharoah.plan import NOISY, PLAIN, STEADY, Plan
from pharoah.windows import RankWindows
from pharoah_provider.learning.plans import NOISY_RATIO, STEADY_RATIO

ARCHETYPES = 25
SECONDS = 180
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Behaviour:
    """How an archetype's steps behave on a healthy node."""

    step_seconds: float
    noise_ratio: float
    pause_every: int
    pause_seconds: float
    growth_per_minute: float
    accepts_ratio: float
    """How often its tenant takes the offered node."""
    fails_ratio: float

    @property
    def plan(self) -> Plan:
        """What the provider has learned about it."""
        if self.noise_ratio < STEADY_RATIO:
            return STEADY
        return NOISY if self.noise_ratio > NOISY_RATIO else PLAIN


def behaviours(chance: random.Random) -> list[Behaviour]:
    """From small models with steps of 20 ms to large ones of 3 s."""
    return [
        Behaviour(
            0.02 * 150 ** chance.random(),
            min(0.3, 0.004 * 25 ** chance.random()),
            chance.choice([0, 100, 400]),
            chance.uniform(0.5, 15),
            chance.choice([0.0, 0.0, 0.0, 0.01]),
            chance.uniform(0.85, 1.0),
            chance.uniform(0.01, 0.15),
        )
        for _ in range(ARCHETYPES)
    ]


def told(behaviour: Behaviour, chance: random.Random) -> dict[str, list[float]]:
    """One run, as the provider sees it: field to values."""
    windows, now, resident = RankWindows(behaviour.plan), 0.0, 10**9
    step_levels, memory_levels, number = [], [], 0
    now += chance.uniform(3, 30)  # loading
    for second in range(SECONDS):
        while now < second + 1:
            number += 1
            took = behaviour.step_seconds * max(0.3, chance.gauss(1, behaviour.noise_ratio))
            if behaviour.pause_every and number % behaviour.pause_every == 0:
                took += behaviour.pause_seconds
            now += took
            grown = resident * (1 + behaviour.growth_per_minute * now / 60)
            windows.add([int(took * 1e9)], int(grown))
        step_levels.append(float(windows.now.step))
        memory_levels.append(float(windows.now.memory))
    return {
        "step_levels": step_levels,
        "memory_levels": memory_levels,
        "accept": [float(chance.random() < behaviour.accepts_ratio)],
        "state": [float(chance.random() < behaviour.fails_ratio)],
        "telemetry.busy": [1.0] * 5,
    }


def with_reports(figures: Figures, chance: random.Random, runs: int) -> None:
    """How much better than the prior; each field alone, and all of them."""
    known = behaviours(chance)
    weights = [1 / (rank + 1) for rank in range(ARCHETYPES)]
    asked = chance.choices(range(ARCHETYPES), weights, k=runs)
    seen = [told(known[rank], chance) for rank in asked]
    fields = list(seen[0])
    advantages = {name: _advantage([_summary(run, [name]) for run in seen], asked) for name in fields}
    together = _advantage([_summary(run, fields) for run in seen], asked)
    worst = max(advantages, key=lambda name: advantages[name])
    half = 1.96 * sqrt(0.25 / (runs / 2))
    figures.details["reports"] = {**advantages, "together": together}
    figures.add(
        "provider_advantage_with_reports", max(together, advantages[worst]), "<= 0.05",
        max(together, advantages[worst]) <= 0.05, f"+-{half:.3f} n={runs // 2}; most: {worst}",
    )  # fmt: skip


def _advantage(rows: list[list[float]], asked: list[int]) -> float:
    """The better of two attackers, trained on one half, over the prior alone on the other: a vote of the 15 nearest
    neighbours, and a linear classifier."""
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


def _summary(run: dict[str, list[float]], names: list[str]) -> list[float]:
    """What a person would look at first: level, spread, how often it moves, extremes, the first that moves."""
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
