"""Simulated production runs with planted incompatibilities, and everything that makes plain counting go wrong.

Runs of 12 archetypes carry 10 contexts, which overlap (a driver, a kernel, a cooling zone). Some contexts are slightly
bad for everybody. Who runs what, and where, depends on the tenant, the generation of the hardware, the scale of the job
and the age of the node, all of which also change how often a run fails; these are recorded. With `hidden`, a cause that
nobody records raises failures and is more common with some archetypes and contexts. Eight pairs are truly incompatible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from pharoah_learning.observations import Flags, Observations

ARCHETYPES, CONTEXTS, PLANTED = 12, 10, 8
GENERATIONS, SCALES, AGES, TENANTS = 3, 4, 4, 8
ODDS_RATIOS = (2.5, 6.0)
"""The planted odds ratios lie between these, evenly on a logarithmic scale."""
FAILING_RATIO = 0.055
"""The share of all runs that fail."""
CONTEXT_SPREAD = 0.15
"""Standard deviation of the log odds that a context adds for every archetype."""
CONFOUNDER_SPREAD = 0.3
CHUNK_RUNS = 1 << 18
"""Runs that are drawn at once, so that ten million of them take little memory."""
HIDDEN_FAILURE, HIDDEN_CONTEXT, HIDDEN_ARCHETYPE = 1.2, 1.0, 0.8
"""Log odds that the hidden cause adds to a failure, and standard deviations of what it adds to contexts and
archetypes."""


@dataclass(frozen=True)
class Simulated:
    """Runs, and the truth about them."""

    seen: Observations
    incompatible: NDArray[np.bool_]
    """Shape (archetypes, contexts)."""
    log_odds: NDArray[np.float64]
    """Shape (runs,): what made each run fail or not."""
    effects: NDArray[np.float64]
    """Shape (archetypes, contexts): what each pair adds to them."""


def simulate(runs: int, seed: int, *, hidden: bool) -> Simulated:
    """Runs of one fleet. The fleet (who runs what, which pairs are incompatible) depends on the seed as well."""
    rng = np.random.default_rng(seed)
    tenant = rng.choice(TENANTS, runs, p=rng.dirichlet(np.full(TENANTS, 4.0)))
    generation = _chosen(rng, _Tendency(rng.normal(0, 0.6, (TENANTS, GENERATIONS)), tenant))
    age = _chosen(rng, _Tendency(rng.normal(0, 0.6, (GENERATIONS, AGES)), generation))
    scale = _chosen(rng, _Tendency(rng.normal(0, 0.6, (TENANTS, SCALES)), tenant))
    cause = rng.random(runs) < (0.3 if hidden else 0.0)
    archetype = _chosen(
        rng,
        _Tendency(rng.normal(0, 0.6, (TENANTS, ARCHETYPES)), tenant),
        _Tendency(_only_with(rng.normal(0, HIDDEN_ARCHETYPE, ARCHETYPES)), cause),
    )
    in_context = _in_contexts(
        rng,
        _Tendency(rng.normal(0, 0.6, (GENERATIONS, CONTEXTS)), generation),
        _Tendency(rng.normal(0, 0.6, (TENANTS, CONTEXTS)), tenant),
        _Tendency(_only_with(np.abs(rng.normal(0, HIDDEN_CONTEXT, CONTEXTS))), cause),
    )
    chosen = rng.choice(ARCHETYPES * CONTEXTS, PLANTED, replace=False)
    incompatible = np.zeros((ARCHETYPES, CONTEXTS), dtype=bool)
    incompatible.flat[chosen] = True
    effects = np.zeros((ARCHETYPES, CONTEXTS))
    effects.flat[chosen] = np.log(np.geomspace(*ODDS_RATIOS, PLANTED))
    log_odds = (
        rng.normal(0, CONFOUNDER_SPREAD, ARCHETYPES)[archetype]
        + rng.normal(0, CONFOUNDER_SPREAD, TENANTS)[tenant]
        + rng.normal(0, CONFOUNDER_SPREAD, GENERATIONS)[generation]
        + np.linspace(0, 0.8, SCALES)[scale]
        + np.linspace(0, 0.6, AGES)[age]
        + in_context @ np.maximum(0, rng.normal(0, CONTEXT_SPREAD, CONTEXTS))
        + np.concatenate([(in_context[some] * effects[archetype[some]]).sum(axis=1) for some in _chunks(runs)])
        + HIDDEN_FAILURE * cause
    )
    log_odds += brentq(lambda base: expit(log_odds + base).mean() - FAILING_RATIO, -20, 20)
    failed = rng.random(runs) < expit(log_odds)
    seen = Observations(
        tuple(f"a{number}" for number in range(ARCHETYPES)),
        tuple(f"c{number}" for number in range(CONTEXTS)),
        archetype,
        in_context,
        {"generation": generation, "scale": scale, "age": age, "tenant": tenant},
        failed,
    )
    return Simulated(seen, incompatible, log_odds, effects)


class _Tendency(NamedTuple):
    """What a property of runs adds to their preferences."""

    table: NDArray[np.float64]
    """Shape (values of the property, choices)."""
    value: NDArray[Any]
    """Shape (runs,)."""


def _only_with(preferences: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table of a property that a run has or has not."""
    return np.stack([np.zeros_like(preferences), preferences])


def _chosen(rng: np.random.Generator, *tendencies: _Tendency) -> NDArray[np.int64]:
    """One choice for each run, with probabilities that are the softmax of its preferences."""
    return np.concatenate(
        [(some + rng.gumbel(size=some.shape)).argmax(axis=1) for some in _preferences(tendencies)], dtype=np.int64
    )


def _in_contexts(rng: np.random.Generator, *tendencies: _Tendency) -> Flags:
    """For each run, which contexts it has: each with the logistic function of its preference as probability."""
    return np.concatenate([rng.random(some.shape) < expit(some) for some in _preferences(tendencies)])


def _preferences(tendencies: Sequence[_Tendency]) -> Iterator[NDArray[np.float64]]:
    """The preferences of some runs after the other, each of shape (runs, choices)."""
    for some in _chunks(len(tendencies[0].value)):
        total = tendencies[0].table[tendencies[0].value[some]]
        for one in tendencies[1:]:
            total = total + one.table[one.value[some].astype(np.int64)]
        yield total


def _chunks(runs: int) -> Iterator[slice]:
    for begin in range(0, runs, CHUNK_RUNS):
        yield slice(begin, begin + CHUNK_RUNS)
