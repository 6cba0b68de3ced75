"""Simulated nodes of a provider: their trouble hour by hour, and their failures.

Two thirds of the failures come after hours of trouble of one signal, which becomes more; the others come without a
sign. Some nodes have trouble for days and never fail. Healthy nodes have a little trouble now and then. All of it is
made up: it ranks methods, and forecasts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pharoah_learning.node_failures import HOUR_SECONDS, NodeFailure, TroubleHour
from pharoah_protocol.vocabulary import Resource

SIGNALS = {
    "gpu_uncorrected_errors": Resource.MEMORY_CAPACITY,
    "gpu_thermal_slowdown": Resource.COMPUTE,
    "network_link_down": Resource.NETWORK,
}
"""Signals that show a failure before it comes, and what fails then."""
QUIET_SIGNAL = "memory_stalled"
"""A signal that says nothing about failures."""
FIRST_HOUR = 490_000
"""Hours since 1970; in the year 2025."""
_REPAIR_HOURS = 12
_SEEN_SHARE = 0.98


@dataclass(frozen=True, kw_only=True)
class SimulatedNodes:
    """Parameters, which are pinned here."""

    nodes: int = 500
    hours: int = 672
    failing_share: float = 0.3
    """Nodes that fail once."""
    sudden_share: float = 1 / 3
    """Failures without a sign."""
    gray_share: float = 0.04
    """Nodes that have trouble for days and do not fail."""
    lead_hours: tuple[int, int] = (6, 60)
    """From the first trouble to the failure, shortest and longest."""
    noise_per_hour: float = 0.002
    """Hours with trouble that means nothing, of each signal."""


class NodeHistory(NamedTuple):
    """What a provider knows of its nodes."""

    observed: dict[str, list[int]]
    trouble: list[TroubleHour]
    failures: list[NodeFailure]
    ended_at: float
    """Unix seconds."""


def simulate_nodes(parameters: SimulatedNodes, rng: np.random.Generator) -> NodeHistory:
    """Draw the history of some nodes."""
    observed: dict[str, list[int]] = {}
    trouble: list[TroubleHour] = []
    failures: list[NodeFailure] = []
    for number in range(parameters.nodes):
        node = f"n{number:04}"
        seen = np.flatnonzero(rng.random(parameters.hours) < _SEEN_SHARE)
        shares = _noise(parameters, rng)
        kind = rng.random()
        if kind < parameters.failing_share:
            failures.append(_failure(parameters, node, shares, rng))
        elif kind < parameters.failing_share + parameters.gray_share:
            signal, begins = rng.choice(list(SIGNALS)), int(rng.integers(0, parameters.hours // 2))
            shares[signal][begins:] = np.maximum(shares[signal][begins:], rng.uniform(0.01, 0.08))
        observed[node] = [FIRST_HOUR + int(hour) for hour in seen]
        trouble += [
            TroubleHour(
                node, signal, f"{signal.partition('_')[0]}{number % 4}", FIRST_HOUR + int(hour), float(found[hour])
            )
            for signal, found in shares.items()
            for hour in seen[found[seen] > 0]
        ]
    return NodeHistory(observed, trouble, failures, (FIRST_HOUR + parameters.hours) * HOUR_SECONDS)


def _noise(parameters: SimulatedNodes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shape = parameters.hours
    return {
        signal: np.where(rng.random(shape) < parameters.noise_per_hour, rng.uniform(0.02, 0.5, shape), 0.0)
        for signal in (*SIGNALS, QUIET_SIGNAL)
    }


def _failure(
    parameters: SimulatedNodes, node: str, shares: dict[str, np.ndarray], rng: np.random.Generator
) -> NodeFailure:
    """A failure of a node, and the trouble before it."""
    at = int(rng.integers(parameters.lead_hours[1] + 24, parameters.hours))
    signal = str(rng.choice(list(SIGNALS)))
    if rng.random() >= parameters.sudden_share:
        lead = int(rng.integers(*parameters.lead_hours))
        rising = np.linspace(0.05, 1.0, lead) * rng.uniform(0.1, 0.8)
        shares[signal][at - lead : at] = np.maximum(shares[signal][at - lead : at], rising)
    since = (FIRST_HOUR + at + 0.5) * HOUR_SECONDS
    return NodeFailure(node, since, since + _REPAIR_HOURS * HOUR_SECONDS, SIGNALS[signal])
