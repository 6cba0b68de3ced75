"""Facts that matter for failures, in simulated runs with 60 facts: how many of those found are causes, and how many
causes are found.

Simpler methods stand beside it on the same runs, and an oracle, which knows the odds of every run and so needs no
adjustment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from evaluation.figures import Figures
from evaluation.learning.simpler_fact_methods import FACT_METHODS, mutual_information
from evaluation.learning.simulated_facts import FactSettings, SimulatedFacts, simulate_facts
from pharoah_learning.models.contrasts import MAX_FALSE_RATE
from pharoah_learning.relevant_facts import FactRuns, find_relevant_facts

DRAWS, QUICK_DRAWS = 8, 3
OTHER_DRAWS, QUICK_OTHER_DRAWS = 2, 1
OTHER_SETTINGS = {
    "5,000 runs": FactSettings(runs=5_000),
    "50,000 runs": FactSettings(runs=50_000),
    "weak decoys": FactSettings(decoy_strength=0.6),
    "strong decoys": FactSettings(decoy_strength=2.0),
    "20 decoys": FactSettings(decoys=20),
    "no decoys": FactSettings(decoys=0),
    "12 causes": FactSettings(causal=12),
}
"""Parameters of the simulator beside the usual ones."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The F1 of the facts found, over several fleets; other parameters of the simulator are in a table."""
    usual = _scores(FactSettings(), arguments.seed, QUICK_DRAWS if arguments.quick else DRAWS)
    means = {name: float(np.mean([draw[0] for draw in draws])) for name, draws in usual.items()}
    own, oracle = means.pop("this method"), means.pop("oracle")
    best = max(means.values())
    figures.add("context_f1", own, f">= {best:.2f}, the best of the others", own >= best)
    for name, value in means.items():
        figures.add(f"context_f1_{name}", value)
    figures.add("context_f1_oracle", oracle)
    figures.table(
        "Facts found to matter in 20,000 simulated runs with 60 facts; the oracle knows the odds of every run.",
        ["method", "F1", "precision", "recall", "lowest and highest F1 of a fleet"],
        [[name.replace("_", " "), *_shown(draws)] for name, draws in usual.items()],
    )
    others = {
        name: _scores(settings, arguments.seed, QUICK_OTHER_DRAWS if arguments.quick else OTHER_DRAWS)
        for name, settings in OTHER_SETTINGS.items()
    }
    figures.table(
        "The F1 with other parameters of the simulator.",
        ["parameters", *(name.replace("_", " ") for name in usual)],
        [
            [name, *(f"{np.mean([draw[0] for draw in draws]):.2f}" for draws in scores.values())]
            for name, scores in others.items()
        ],
    )


Score = tuple[float, float, float]
"""F1, precision and recall."""


def _scores(settings: FactSettings, seed: int, draws: int) -> dict[str, list[Score]]:
    """Method to its score in each fleet."""
    methods: dict[str, Callable[[SimulatedFacts], set[str]]] = {
        "this method": lambda fleet: _found(fleet.seen),
        **{name: _on_runs(method) for name, method in FACT_METHODS.items()},
        "mutual_information": lambda fleet: mutual_information(fleet.seen, len(fleet.causal)),
        "oracle": _oracle,
    }
    fleets = [simulate_facts(settings, 3000 * seed + number) for number in range(draws)]
    return {name: [_score(method(fleet), fleet.causal) for fleet in fleets] for name, method in methods.items()}


def _on_runs(method: Callable[[FactRuns], set[str]]) -> Callable[[SimulatedFacts], set[str]]:
    return lambda fleet: method(fleet.seen)


def _found(seen: FactRuns) -> set[str]:
    return {finding.fact for finding in find_relevant_facts(seen) if finding.relevant}


def _oracle(fleet: SimulatedFacts) -> set[str]:
    """Facts whose runs fail more or less often than the true odds without their own effect say, with all archetypes
    together or with one (Bonferroni's bound)."""
    seen, names = fleet.seen, list(fleet.seen.facts)
    deviations = np.zeros((1 + len(seen.archetypes), len(names)))
    for at, codes in enumerate(seen.facts.values()):
        p = expit(fleet.log_odds - codes * fleet.effects[seen.archetype, at])
        for row in range(len(deviations)):
            chosen = (codes == 1) & ((row == 0) | (seen.archetype == row - 1))
            spread = np.sqrt((p[chosen] * (1 - p[chosen])).sum())
            deviations[row, at] = (seen.failed[chosen] - p[chosen]).sum() / spread
    p_values = 2 * norm.sf(np.abs(deviations))
    found = (p_values <= MAX_FALSE_RATE / p_values.size).any(axis=0)
    return {name for name, chosen in zip(names, found, strict=True) if chosen}


def _score(found: set[str], causal: frozenset[str]) -> Score:
    hits = len(found & causal)
    return 2 * hits / (len(found) + len(causal)), hits / max(1, len(found)), hits / len(causal)


def _shown(draws: list[Score]) -> list[str]:
    means = [f"{np.mean([draw[at] for draw in draws]):.2f}" for at in range(3)]
    f1 = [draw[0] for draw in draws]
    return [*means, f"{min(f1):.2f} to {max(f1):.2f}"]
