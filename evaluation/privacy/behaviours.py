"""How the steps of simulated archetypes behave, what they ask of their nodes, and how their runs end.

Every archetype is heavy on one resource: processors, memory, disks or the network between nodes. The ranges below are
ours and wide on purpose: an archetype that differs more from the others is easier to recognise. `real_telemetry` has
what real jobs of these kinds show on a real node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, sqrt
from typing import NamedTuple

from pharoah_learning.monitoring_plans import plan_for
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.vocabulary import Resource

ARCHETYPES = 25
WEIGHTS = [1 / (rank + 1) for rank in range(ARCHETYPES)]
SECONDS = 1800
FULL_RATIO = 0.97
"""Share of the node's memory above which its tasks wait for memory."""
LATE_RUNS_RATIO = 0.2
"""In how many runs of an archetype that may wait longer for its data this happens. Assumed, and the figure of reports
depends on it (ADR 53)."""
TYPICAL_DEVIATION = 0.6745
"""Median distance from the middle of a normal distribution, in standard deviations."""


class Range(NamedTuple):
    """From where to where."""

    low: float
    high: float

    def draw(self, chance: random.Random) -> float:
        return chance.uniform(self.low, self.high)


@dataclass(frozen=True)
class Kind:
    """What archetypes that are heavy on one resource have in common."""

    power: Range
    """Share of the power limit of its GPU, while it steps."""
    memory_waiting: Range
    """Share of the time in which some task of the node waits for memory, while it steps."""
    computed: Range
    """Share of a step in which the main thread computes."""
    workers: Sequence[int]
    """Processes that load data, one of these numbers."""
    distributed_ratio: float
    """How many of them run on several nodes."""
    late_data_ratio: float
    """How many of them wait longer for their data at some time of a run."""


KINDS: Mapping[Resource, Kind] = {
    Resource.COMPUTE: Kind(Range(0.8, 1.0), Range(0.0, 0.01), Range(0.85, 1.0), (0, 2, 4), 0.3, 0.0),
    Resource.MEMORY_CAPACITY: Kind(Range(0.5, 0.75), Range(0.0, 0.1), Range(0.6, 0.95), (0, 2, 4), 0.3, 0.1),
    Resource.STORAGE: Kind(Range(0.25, 0.55), Range(0.0, 0.05), Range(0.2, 0.6), (4, 8, 16), 0.1, 0.4),
    Resource.NETWORK: Kind(Range(0.4, 0.7), Range(0.0, 0.01), Range(0.3, 0.7), (0, 2, 4), 1.0, 0.2),
}


@dataclass(frozen=True)
class Load:
    """What an archetype asks of its node."""

    heavy: Resource
    power_ratio: float
    memory_waiting_ratio: float
    computed_ratio: float
    workers: int
    distributed: bool
    filling_seconds: float
    """After so long the job has filled its disk; infinite where it deletes what it wrote."""
    late_data_ratio: float
    """Its steps take so many times as long while its data come late, for some minutes of a run."""


@dataclass(frozen=True)
class Taken:
    """One step: how long it took, and how much of that was a pause, for a checkpoint or an evaluation."""

    seconds: float
    pause_seconds: float


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
    load: Load

    @property
    def plan(self) -> MonitoringPlan:
        """The plan in its row; the plain one for an archetype without a row."""
        return plan_for(TYPICAL_DEVIATION * self.noise_ratio) if self.known else PLAIN

    def steps(self, chance: random.Random) -> Iterator[Taken]:
        """One step after the other, without end."""
        deviation, fresh = 0.0, sqrt(1 - self.correlation**2)
        for number in count(1):
            deviation = self.correlation * deviation + fresh * chance.gauss()
            pause = self.pause_seconds if self.pause_every and number % self.pause_every == 0 else 0.0
            yield Taken(self.step_seconds * max(0.3, 1 + self.noise_ratio * deviation) + pause, pause)

    def late_data(self, chance: random.Random) -> Range:
        """The seconds of one run between which its data come late; an empty range in most runs."""
        if self.load.late_data_ratio == 1.0 or chance.random() >= LATE_RUNS_RATIO:
            return Range(inf, inf)
        began = chance.uniform(0.2, 0.7) * SECONDS
        return Range(began, began + chance.uniform(120, 600))


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
        memory_ratio=chance.uniform(0.1, FULL_RATIO / (1 + growth_per_minute * SECONDS / 60)),
        growth_per_minute=growth_per_minute,
        known=chance.random() < 0.5,
        accepts_ratio=chance.uniform(0.85, 1.0),
        fails_ratio=chance.uniform(0.01, 0.15),
        load=_load(chance),
    )


def _load(chance: random.Random) -> Load:
    heavy = chance.choice(list(KINDS))
    kind = KINDS[heavy]
    return Load(
        heavy=heavy,
        power_ratio=kind.power.draw(chance),
        memory_waiting_ratio=kind.memory_waiting.draw(chance),
        computed_ratio=kind.computed.draw(chance),
        workers=chance.choice(kind.workers),
        distributed=chance.random() < kind.distributed_ratio,
        filling_seconds=chance.uniform(1.0, 3.0) * SECONDS if chance.random() < 0.15 else inf,
        late_data_ratio=chance.uniform(1.05, 1.5) if chance.random() < kind.late_data_ratio else 1.0,
    )
