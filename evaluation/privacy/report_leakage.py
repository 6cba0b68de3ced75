"""Attackers of the monitoring: from everything that reaches the provider of a run, which archetype is it?

`simulated_runs` makes what it sees: reported levels, the decision, the end, questions for a validation, and the trouble
that the agent of the node sends. Each group of these is judged alone and left out, so that one sees which of them
leaks. The price is measured too: when slowdowns are reported.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.figures import Figures
from evaluation.privacy.behaviours import ARCHETYPES, WEIGHTS, Behaviour, behaviours
from evaluation.privacy.guessing import Advantage, advantage
from evaluation.privacy.simulated_nodes import DeviceState, Shown, agent_signals
from evaluation.privacy.simulated_runs import GROUPS, Job, SeenRun, Series
from pharoah_protocol.reports import RankWindows

MAX_ADVANTAGE = 0.05
"""The bound: how much more often than the prior alone a provider may be right."""
SLOWED_RATIO, SLOWED_SECONDS = 1.5, 90
Floats = NDArray[np.float64]


def measure(figures: Figures, seed: int, quick: bool) -> None:
    """All figures of the monitoring; the same ones for the same seed, whatever else is measured."""
    chance = random.Random(seed)
    with TemporaryDirectory() as folder, agent_signals(Path(folder)) as shown:
        worlds = [_World.draw(chance, 200 if quick else 1_000, shown) for _ in range(1 if quick else 3)]
    _with_reports(figures, worlds)
    _slowdowns(figures, chance, 1_000 if quick else 4_000)


@dataclass
class _Seen:
    """Statistics of every field of all runs of a world, on nodes of one sort."""

    rows: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The fields of each group, and of what is known and what stays."""
    shows: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Runs in which a field is not always zero."""

    def add(self, run: SeenRun) -> None:
        groups: dict[str, Series] = {name: of(run) for name, of in GROUPS.items()}
        groups |= {KNOWN: run.node, STAYS: run.stays}
        for group, series in groups.items():
            self.groups[group] = tuple(series)
            for name, values in series.items():
                self.rows[name].append(_summary(values))
                self.shows[name] += any(values)

    def advantage(self, names: Sequence[str], asked: NDArray[np.int64]) -> Advantage:
        """From these fields, and what is known of the node."""
        columns = [np.array(self.rows[name]) for name in (*names, *self.groups[KNOWN])]
        return advantage(np.hstack(columns), asked, ARCHETYPES)

    @property
    def sent(self) -> tuple[str, ...]:
        return tuple(name for group in GROUPS for name in self.groups[group])


KNOWN, STAYS = "known of the node", "stays on the node"


class _Part(NamedTuple):
    """What one part of everything that is sent reveals."""

    shows_ratio: float
    alone: Advantage
    without: Advantage | None
    """All other parts together; None for a field, whose group is one already."""


@dataclass(frozen=True)
class _World:
    """Twenty-five archetypes, and runs of them on usual and on ailing nodes."""

    asked: NDArray[np.int64]
    usual: _Seen
    ailing: _Seen

    @classmethod
    def draw(cls, chance: random.Random, runs: int, shown: Callable[[DeviceState], Shown]) -> _World:
        known, usual, ailing = behaviours(chance), _Seen(), _Seen()
        asked = chance.choices(range(ARCHETYPES), WEIGHTS, k=runs)
        for rank in asked:
            job = Job.start(known[rank], chance)
            usual.add(job.seen(chance, shown))
            ailing.add(job.seen(chance, shown, ailing=True))
        return cls(np.array(asked, dtype=np.int64), usual, ailing)

    def parts(self, seen: _Seen) -> dict[str, _Part]:
        """Each group of fields, and each field of a group with several."""
        found: dict[str, _Part] = {}
        for group in GROUPS:
            names = seen.groups[group]
            rest = [name for name in seen.sent if name not in names]
            found[group] = _Part(self._ratio(seen, names), self._of(seen, names), self._of(seen, rest))
            for name in names if len(names) > 1 else ():
                found[name] = _Part(self._ratio(seen, [name]), self._of(seen, [name]), None)
        return found

    def _of(self, seen: _Seen, names: Sequence[str]) -> Advantage:
        return seen.advantage(names, self.asked)

    def _ratio(self, seen: _Seen, names: Sequence[str]) -> float:
        return max(seen.shows[name] for name in names) / len(self.asked)


@dataclass(frozen=True)
class _Judged:
    """What the attackers find in one world."""

    together: Advantage
    parts: Mapping[str, _Part]

    @classmethod
    def of(cls, world: _World, seen: _Seen) -> _Judged:
        return cls(seen.advantage(seen.sent, world.asked), world.parts(seen))

    @property
    def worst(self) -> Advantage:
        return max([self.together, *(part.alone for part in self.parts.values())], key=lambda one: one.value)

    @property
    def most(self) -> str:
        """The part that reveals most by itself."""
        return max(self.parts, key=lambda name: self.parts[name].alone.value)


def _with_reports(figures: Figures, worlds: Sequence[_World]) -> None:
    """How much better than the prior: each part alone and all of them, in the world of archetypes where most leaks."""
    usual = [_Judged.of(world, world.usual) for world in worlds]
    ailing = [_Judged.of(world, world.ailing) for world in worlds]
    worst, bad = (max(found, key=lambda one: one.worst.value) for found in (usual, ailing))
    figures.details["reports"] = [_data(one) for one in usual]
    figures.details["reports_on_ailing_nodes"] = [_data(one) for one in ailing]
    value, of = worst.worst.value, f", worst of {len(worlds)}; most: "
    figures.add(
        "provider_advantage_with_reports",
        value,
        f"<= {MAX_ADVANTAGE:g}",
        value <= MAX_ADVANTAGE,
        worst.worst.interval + of + worst.most,
    )
    figures.add("provider_advantage_on_ailing_nodes", bad.worst.value, interval=bad.worst.interval + of + bad.most)
    stays = [world.usual.advantage(world.usual.groups[STAYS], world.asked) for world in worlds]
    control = min(stays, key=lambda one: one.value)
    found = control.value - control.half_width > MAX_ADVANTAGE
    figures.add(
        "provider_advantage_control", control.value, f"interval above {MAX_ADVANTAGE:g}", found, control.interval
    )
    figures.table(
        "How much better than the prior a provider guesses from one part of what it sees, and without that part, in "
        "the worst world. A part shows in a run when it is not zero all the time.",
        ("part", "shows in runs", "alone", "without it", "on ailing nodes: shows", "alone", "without it"),
        [_row(name, worst.parts[name], bad.parts[name]) for name in worst.parts],
    )


def _row(name: str, usual: _Part, ailing: _Part) -> tuple[str, ...]:
    cells = [name if usual.without else f"- `{name}`"]
    for part in (usual, ailing):
        cells += [f"{part.shows_ratio:.1%}", _shown(part.alone), _shown(part.without) if part.without else ""]
    return tuple(cells)


def _shown(one: Advantage) -> str:
    return f"{one.value:.3f} +-{one.half_width:.3f}"


def _data(one: _Judged) -> dict[str, object]:
    return {"together": one.together._asdict(), **{name: part.alone._asdict() for name, part in one.parts.items()}}


def slowed(behaviour: Behaviour, chance: random.Random) -> list[float]:
    """Levels of a run from the moment its node becomes slower, some time after the run has its baseline."""
    windows, steps = RankWindows(behaviour.plan), behaviour.steps(chance)
    while not windows.add([int(next(steps).seconds * 1e9)], 10**9):
        pass  # it has no baseline yet
    for _ in range(chance.randrange(100)):
        windows.add([int(next(steps).seconds * 1e9)], 10**9)
    now, levels = 0.0, []
    for second in range(SLOWED_SECONDS):
        while now < second + 1:
            took = SLOWED_RATIO * next(steps).seconds
            now += took
            windows.add([int(took * 1e9)], 10**9)
        levels.append(float(windows.now.step))
    return levels


def _slowdowns(figures: Figures, chance: random.Random, runs: int) -> None:
    """How many slowdowns are reported, and how soon; and what a provider learns by slowing its own node."""
    known = behaviours(chance)
    asked = chance.choices(range(ARCHETYPES), WEIGHTS, k=runs)
    seen = [slowed(known[rank], chance) for rank in asked]
    first = [next((at + 1 for at, level in enumerate(levels) if level > 0), None) for levels in seen]
    waits = [seconds for seconds in first if seconds is not None]
    figures.add(
        "slowdown_reported_ratio", len(waits) / runs, interval=f"{SLOWED_RATIO}x, within {SLOWED_SECONDS} s, n={runs}"
    )
    figures.add("slowdown_reported_p50_seconds", median(waits), interval=f"n={len(waits)}")
    found = advantage(np.array([_summary(levels) for levels in seen]), np.array(asked, dtype=np.int64), ARCHETYPES)
    figures.add("provider_advantage_slowing_its_node", found.value, interval=f"{SLOWED_RATIO}x, {found.interval}")


def _summary(values: Sequence[float]) -> list[float]:
    """Statistics of one field: mean, spread, how often it changes, extremes, first, share and longest stretch of
    non-zero values. What a run has only once stands for itself."""
    if len(values) == 1:
        return [values[0]]
    v = np.array(values)
    if not v.any():
        return [0.0] * 8
    return [
        float(v.mean()),
        float(v.std()),
        float((np.diff(v) != 0).mean()),
        float(v.max()),
        float(v.min()),
        float(np.argmax(v != 0)),
        float((v != 0).mean()),
        float(max(_stretches(v != 0), default=0)),
    ]


def _stretches(shows: NDArray[np.bool_]) -> Iterator[int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], shows.astype(int), [0]])))
    yield from (int(end - begin) for begin, end in edges.reshape(-1, 2))
