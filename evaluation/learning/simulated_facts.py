"""Simulated runs on nodes with many facts, of which few are causes and many only look like causes.

Of 60 facts, 6 raise failures for every archetype, 3 for one archetype only, and 10 are decoys: they follow a hidden
cause that raises failures, and do nothing themselves. A third of the causal facts follow the hidden cause as well. All
facts depend on the generation of the hardware and on the tenant, which are recorded and change failures, as do the
scale of a job and the age of a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from pharoah_learning.relevant_facts import FactRuns

ARCHETYPES, GENERATIONS, SCALES, AGES, TENANTS = 6, 3, 4, 4, 8
FAILING_RATIO = 0.055
"""The share of all runs that fail."""
CONFOUNDER_SPREAD, FACT_SPREAD = 0.3, 0.4
"""Standard deviations of the log odds that each level of a confounder adds to failures, and to a fact."""
HIDDEN_RATIO = 0.3
"""The share of runs with the hidden cause."""


@dataclass(frozen=True, kw_only=True)
class FactSettings:
    """The parameters of the simulator."""

    runs: int = 20_000
    facts: int = 60
    causal: int = 6
    specific: int = 3
    decoys: int = 10
    odds_ratios: tuple[float, float] = (1.4, 2.5)
    """Planted odds ratios of the causal facts, evenly on a logarithmic scale between these."""
    specific_odds_ratios: tuple[float, float] = (2.5, 4.0)
    decoy_strength: float = 1.2
    """Log odds of a decoy that the hidden cause adds or removes, times a factor between 0.7 and 1.3."""
    hidden_failure: float = 1.2
    """Log odds of a failure that the hidden cause adds."""


@dataclass(frozen=True)
class SimulatedFacts:
    """Runs, and the truth about their facts."""

    seen: FactRuns
    causal: frozenset[str]
    log_odds: NDArray[np.float64]
    """Shape (runs,): what made each run fail or not."""
    effects: NDArray[np.float64]
    """Shape (archetypes, facts): what each fact adds to them."""


def simulate_facts(settings: FactSettings, seed: int) -> SimulatedFacts:
    """Runs of one fleet; which facts are causes depends on the seed as well."""
    rng = np.random.default_rng(seed)
    runs, facts = settings.runs, settings.facts
    hidden = rng.random(runs) < HIDDEN_RATIO
    confounders = {
        "generation": rng.choice(GENERATIONS, runs, p=rng.dirichlet(np.full(GENERATIONS, 4.0))),
        "tenant": rng.choice(TENANTS, runs, p=rng.dirichlet(np.full(TENANTS, 4.0))),
        "scale": rng.choice(SCALES, runs),
        "age": rng.choice(AGES, runs),
    }
    archetype = rng.choice(ARCHETYPES, runs, p=rng.dirichlet(np.full(ARCHETYPES, 8.0)))
    order = rng.permutation(facts)
    causal, specific, decoys = np.split(order, np.cumsum([settings.causal, settings.specific, settings.decoys]))[:3]
    following = np.concatenate([decoys, causal[: settings.causal // 3]])
    strength = np.zeros(facts)
    strength[following] = settings.decoy_strength * rng.uniform(0.7, 1.3, len(following)) * _signs(rng, len(following))
    present = rng.random((runs, facts)) < expit(
        rng.normal(0, 0.7, facts)
        + rng.normal(0, FACT_SPREAD, (GENERATIONS, facts))[confounders["generation"]]
        + rng.normal(0, FACT_SPREAD, (TENANTS, facts))[confounders["tenant"]]
        + np.outer(hidden, strength)
    )
    effect = np.log(np.geomspace(*settings.odds_ratios, settings.causal)) * _signs(rng, settings.causal)
    own = np.log(np.geomspace(*settings.specific_odds_ratios, settings.specific))
    chosen = rng.choice(ARCHETYPES, settings.specific, replace=settings.specific > ARCHETYPES)
    effects = np.zeros((ARCHETYPES, facts))
    effects[:, rng.permutation(causal)] = effect
    effects[chosen, specific] = own
    log_odds = (
        sum(
            rng.normal(0, CONFOUNDER_SPREAD, int(codes.max()) + 1)[codes]
            for codes in (archetype, *confounders.values())
        )
        + (present * effects[archetype]).sum(axis=1)
        + settings.hidden_failure * hidden
    )
    log_odds += brentq(lambda base: expit(log_odds + base).mean() - FAILING_RATIO, -20, 20)
    names = [f"f{number}" for number in range(facts)]
    seen = FactRuns(
        tuple(f"a{number}" for number in range(ARCHETYPES)),
        archetype,
        {name: present[:, at].astype(np.int64) for at, name in enumerate(names)},
        confounders,
        rng.random(runs) < expit(log_odds),
    )
    return SimulatedFacts(seen, frozenset(names[at] for at in (*causal, *specific)), log_odds, effects)


def _signs(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Plus and minus one: a fact may be the value that is worse, or the one that is better."""
    return rng.choice([-1.0, 1.0], count)
