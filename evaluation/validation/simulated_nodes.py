"""Simulated runs of a micro-benchmark on healthy and on faulty nodes.

The logarithm of a repeat is the sum of what the node is (a normal distribution), what it is in this run, what it is in
this repeat, and, for one repeat in twenty, an exponential delay. The sizes are those of matrix products on GPU servers
that their maintainers call repeatable; they are assumed, and the docs state what changes with a heavier tail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pharoah_learning.fleet_comparison import PAST_RUNS, REPEATS
from pharoah_learning.models.mantel_haenszel import Array


@dataclass(frozen=True)
class Healthy:
    """What healthy nodes show; all sizes are ratios, 0.004 is 0.4 %."""

    node_sd: float = 0.004
    """How much nodes differ for good."""
    run_sd: float = 0.001
    """How much runs on one node differ."""
    repeat_sd: float = 0.006
    """How much repeats of one run differ."""
    slow_share: float = 0.05
    """The share of repeats that are slower than that."""
    slow_mean: float = 0.01
    """By how much they are slower, the mean of an exponential distribution."""


@dataclass(frozen=True)
class Fault:
    """What is wrong in the newest run of a node."""

    shift: float = 0.0
    """By how much all repeats are slower."""
    tail_share: float = 0.0
    """The share of repeats that are slower by `tail`."""
    tail: float = 0.0


FAULTS = {
    "1 %": Fault(shift=0.01),
    "2 %": Fault(shift=0.02),
    "3 %": Fault(shift=0.03),
    "5 %": Fault(shift=0.05),
    "tail 1 %": Fault(tail_share=0.2, tail=0.05),
    "tail 2 %": Fault(tail_share=0.2, tail=0.10),
    "rare tail 1 %": Fault(tail_share=0.1, tail=0.10),
}
"""All repeats are slower by so much, or the mean is, because a fifth or a tenth of the repeats are slower."""
NO_FAULT = Fault()


def simulated_runs(
    healthy: Healthy, fault: Fault, nodes: int, rng: np.random.Generator, *, always: bool = False
) -> Array:
    """Logarithms of seconds, shape (nodes, runs, repeats), oldest run first.

    The newest run has the fault, or all runs have it `always`.
    """
    shape = (nodes, PAST_RUNS + 1, REPEATS)
    found = rng.normal(0, healthy.node_sd, (nodes, 1, 1)) + rng.normal(0, healthy.run_sd, (*shape[:2], 1))
    found = found + rng.normal(0, healthy.repeat_sd, shape)
    found += (rng.random(shape) < healthy.slow_share) * rng.exponential(healthy.slow_mean, shape)
    more = fault.shift + fault.tail * (rng.random(shape) < fault.tail_share)
    first = 0 if always else -1
    found[:, first:] += more[:, first:]
    return found
