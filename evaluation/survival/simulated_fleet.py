"""A simulated fleet whose units degrade, with the true hazard of each hour.

A unit is one run on one node, with hourly samples of eight signals. Some failures come without any sign. Of the units
that degrade, nearly half stop getting worse at a low severity: they look sick, and only some of them fail. Some links
count many errors that harm nothing; hot and old units count more of everything, and fail more often without a sign. The
hazard of a degradation is not log-linear in what is measured: it rises steeply between two severities. A user cancels a
run whose steps have become slow more often than others, so that those who stop are not like those who stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pharoah_learning.fleet_features import fleet_features
from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.signal_features import FEATURES, SignalKind, worse_features
from pharoah_protocol.vocabulary import WorseDirection

SIGNALS = {
    "memory_errors": SignalKind.COUNTER,
    "remapped_rows": SignalKind.COUNTER,
    "link_errors": SignalKind.COUNTER,
    "throttles": SignalKind.COUNTER,
    "disk_errors": SignalKind.COUNTER,
    "temperature": SignalKind.GAUGE,
    "host_memory": SignalKind.GAUGE,
    "step_time": SignalKind.GAUGE,
}
STATIC = ("age", "utilisation")
HIGHER = WorseDirection.HIGHER
NAMES = tuple(f"{signal}.{feature}" for signal, kind in SIGNALS.items() for feature in FEATURES[kind]) + STATIC
WORSE = (*(one for kind in SIGNALS.values() for one in worse_features(kind, HIGHER)), *(None for _ in STATIC))
"""All signals are worse when they are higher; of what stands still nothing is known."""
RESOURCES = ("memory", "compute", "network", "storage")
ARCHETYPES = ("decoder", "convnet", "recommender", "speech")


class Mode(NamedTuple):
    """One way to degrade."""

    name: str
    resource: str
    share: float
    """Part of the units that degrade."""
    hours: tuple[float, float]
    """From the onset to the full severity, shortest and longest."""


MODES = (
    Mode("memory", "memory", 0.30, (60, 160)),
    Mode("leak", "memory", 0.20, (48, 140)),
    Mode("link", "network", 0.20, (48, 140)),
    Mode("thermal", "compute", 0.20, (60, 160)),
    Mode("disk", "storage", 0.10, (60, 160)),
)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Parameters, which are pinned here; `--seed` draws other fleets from them."""

    units: int = 16_000
    hours: int = 168
    abrupt_per_hour: float = 3.4e-5
    """Hazard of failures without a sign, of a unit of average age and heat."""
    degrading_share: float = 0.055
    plateau_share: float = 0.45
    """Part of the units that degrade which stop getting worse: most of them do not fail within the hours."""
    plateau: tuple[float, float] = (0.15, 0.4)
    """The least and the largest severity at which these units stop."""
    largest_hazard: float = 0.1
    """Per hour, at full severity."""
    steep_severity: float = 0.6
    steepness: float = 14.0
    """Logistic slope of the hazard in the severity: it is not log-linear in any feature."""
    chatty_share: float = 0.06
    """Links that count many errors and harm nothing."""
    cancels_per_hour: float = 2e-3
    slow_cancels_per_hour: float = 2e-2
    """The same of a run whose steps are 1.15 times as long as at its start."""
    drift_at: int = 0
    """From this hour on the hall is warmer and counters count more; 0 for never."""


class FleetTruth(NamedTuple):
    """A fleet, and what its models do not know."""

    fleet: Fleet
    hazard: Array
    """The true hazard of the next hour, shape (units, hours), NaN where a unit is no longer observed."""
    degrading: np.ndarray
    """Whether a unit failed of a degradation, so that there was something to see."""
    would_fail: np.ndarray
    """The hour after which a unit fails when nobody cancels its run; a large number when it does not."""


def simulate(parameters: Simulated, rng: np.random.Generator) -> FleetTruth:
    """Draw one fleet."""
    units, hours = parameters.units, parameters.hours
    age, heat = rng.gamma(4, 0.25, units), rng.normal(0, 1, units)
    heat = 0.4 * (age - 1) / 0.5 + 0.9 * heat  # old units stand in the warm rows
    archetype = rng.integers(0, len(ARCHETYPES), units)
    mode, severity = _severities(parameters, archetype, rng)
    samples = _samples(parameters, age, heat, archetype, mode, severity, rng)
    abrupt = parameters.abrupt_per_hour * np.exp(0.5 * (age - 1) + 0.3 * heat)
    steep = 1 / (1 + np.exp(-parameters.steepness * (severity - parameters.steep_severity)))
    hazard = abrupt[:, None] + parameters.largest_hazard * steep * (mode >= 0)[:, None]
    last, cause, degrading, would_fail = _ends(parameters, samples["step_time"], abrupt, hazard, mode, rng)
    observed = np.arange(hours)[None, :] <= last[:, None]
    features = np.concatenate(
        [fleet_features(samples[name], kind).astype(np.float32) for name, kind in SIGNALS.items()]
        + [np.broadcast_to(value[:, None, None], (units, hours, 1)).astype(np.float32) for value in (age, heat)],
        axis=2,
    )
    fleet = Fleet(NAMES, WORSE, RESOURCES, ARCHETYPES, features, last, cause, archetype)
    return FleetTruth(fleet, np.where(observed, hazard, np.nan), degrading, would_fail)


def drifted(parameters: Simulated) -> Simulated:
    """The same fleet with a change in the middle, of which no model knows."""
    return replace(parameters, drift_at=parameters.hours // 2)


def _severities(parameters: Simulated, archetype: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Array]:
    """The mode of each unit (-1 for none) and its severity from 0 to 1 in each hour."""
    units, hours = parameters.units, parameters.hours
    share = np.array([mode.share for mode in MODES])
    mode = np.where(rng.random(units) < parameters.degrading_share, rng.choice(len(MODES), units, p=share), -1)
    leak = next(number for number, one in enumerate(MODES) if one.name == "leak")
    mode = np.where((mode == leak) & (archetype == 3), -1, mode)  # one kind of job does not leak
    low, high = (np.array([one.hours[side] for one in MODES])[mode] for side in (0, 1))
    onset, lasts = rng.uniform(-0.1 * hours, hours, units), rng.uniform(low, high)
    shape = rng.uniform(0.8, 2.0, units)
    progress = np.clip((np.arange(hours)[None, :] - onset[:, None]) / lasts[:, None], 0, 1) ** shape[:, None]
    ceiling = np.where(rng.random(units) < parameters.plateau_share, rng.uniform(*parameters.plateau, units), 1.0)
    return mode, np.where(mode[:, None] >= 0, np.minimum(progress, ceiling[:, None]), 0.0)


def _samples(
    parameters: Simulated,
    age: Array,
    heat: Array,
    archetype: np.ndarray,
    mode: np.ndarray,
    severity: Array,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """The signals of each hour, shape (units, hours)."""
    units, hours = severity.shape
    of = {one.name: np.where((mode == number)[:, None], severity, 0.0) for number, one in enumerate(MODES)}
    warmer = np.where(np.arange(hours) >= (parameters.drift_at or hours), 1.0, 0.0)[None, :]
    more = 1 + 0.5 * warmer
    chatty = np.where(rng.random(units) < parameters.chatty_share, rng.gamma(2, 3, units), 0.0)[:, None]
    burst = rng.gamma(4.0, 0.25, (units, hours))  # errors come in bursts
    base = np.exp(0.5 * (age - 1) + 0.3 * heat)[:, None]
    daily = np.sin(2 * np.pi * (np.arange(hours) / 24 + rng.random((units, 1))))
    temperature = 60 + 2 * heat[:, None] + 1.5 * daily + 3 * warmer + rng.normal(0, 0.7, severity.shape)
    temperature += 18 * of["thermal"]
    leaking = 0.004 * (archetype == 1)[:, None] * np.arange(hours)  # a job whose memory always grows a little
    steps = 1 + 0.25 * of["thermal"] ** 2 + 0.2 * of["link"] ** 2 + 0.3 * of["leak"] ** 3 + 0.15 * of["disk"] ** 2
    return {
        "memory_errors": rng.poisson(base * more * (0.05 * burst + 10 * burst * of["memory"] ** 1.5)).astype(float),
        "remapped_rows": rng.poisson(0.002 * base * more + 0.4 * of["memory"] ** 3).astype(float),
        "link_errors": rng.poisson(base * more * burst * (0.1 + chatty) + 25 * burst * of["link"] ** 1.5).astype(float),
        "throttles": rng.poisson(np.exp((temperature - 78) / 3).clip(max=60)).astype(float),
        "disk_errors": rng.poisson(0.02 * base * more + 6 * burst * of["disk"] ** 1.5).astype(float),
        "temperature": temperature,
        "host_memory": 1 + leaking + 1.5 * of["leak"] + rng.normal(0, 0.05, severity.shape),
        "step_time": steps * np.exp(rng.normal(0, 0.03, severity.shape)) + 0.3 * (rng.random(severity.shape) < 0.01),
    }


def _ends(
    parameters: Simulated, steps: Array, abrupt: Array, hazard: Array, mode: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The last hour of each unit; its cause, 0 for none, else one plus the number of the resource; whether it failed
    of its degradation; and when it would have failed."""
    units, hours = hazard.shape
    fails = rng.random(hazard.shape) < -np.expm1(-hazard)
    slow = steps > 1.15
    cancels = rng.random(hazard.shape) < np.where(slow, parameters.slow_cancels_per_hour, parameters.cancels_per_hour)
    failed_at = np.where(fails.any(axis=1), fails.argmax(axis=1), hours)
    cancelled_at = np.where(cancels.any(axis=1), cancels.argmax(axis=1), hours)
    last = np.minimum(np.minimum(failed_at, cancelled_at), hours - 1)
    failed = failed_at <= np.minimum(cancelled_at, hours - 1)
    share = abrupt / hazard[np.arange(units), last]
    degrading = failed & (rng.random(units) >= share)
    place = np.array([RESOURCES.index(one.resource) for one in MODES])[mode]
    own = np.where(degrading, place, rng.integers(0, len(RESOURCES), units))
    return last, np.where(failed, 1 + own, 0), degrading, np.where(failed_at < hours, failed_at, 10 * hours)
