"""Incompatible pairs in the runs of the second simulator, whose values exclude each other and are rolled out in time.

Weak pairs count as true ones where they are called, and are not asked for. Pairs with a hidden cause of their own look
like incompatible ones in every table; they are left out of the precision and printed. An oracle stands beside, which
knows the odds of every run, its host and what users reported wrongly, and tests each pair against these.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from evaluation.figures import Figures
from evaluation.learning.old_contrast import old_contrast
from evaluation.learning.rollout_runs import RolloutFleet, RolloutSettings, Strength, simulate_rollouts
from evaluation.learning.simpler_methods import Mask, fisher, mantel_haenszel
from pharoah_learning.incompatible_pairs import Call, PairContrasts, PairFinding, find_incompatible_pairs
from pharoah_learning.models.contrasts import MAX_FALSE_RATE, find_called, stand_out
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.observations import Observations, adjust, stratify

SEEDS, QUICK_SEEDS = 12, 3
SIZES = {"30k": (30_000, 0.65), "100k": (100_000, 0.80)}
"""Runs, and the recall that is asked for."""
MIN_PRECISION = 0.95
RARE: dict[str, Any] = {"archetypes": 14, "strong": 10, "medium": 10, "weak": 6, "failing_ratio": 0.07}
"""Fleets that are harder: more archetypes share the runs, and half as many runs fail. Their figures have no bound."""
MAX_SIZE_RATIO = 1.5
"""Runs of others are so many times more or fewer at most for their figures to have the key of a usual size."""
WANTED = (Strength.STRONG, Strength.MEDIUM)
TRUE = (*WANTED, Strength.WEAK)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Precision and recall at both sizes over fresh fleets, and what is said where contrasts do not settle."""
    rows, unsaid, unsettled = [], 0, 0
    seeds = range(QUICK_SEEDS if arguments.quick else SEEDS)
    for size, (runs, least_recall) in SIZES.items():
        methods: dict[str, Counter[str]] = {}
        for number in seeds:
            fleet = simulate_rollouts(RolloutSettings(runs=runs), 4000 * arguments.seed + number)
            found = find_incompatible_pairs(fleet.seen, seed=1)
            unsaid += unsettled_unsaid(fleet.seen, found)
            unsettled += sum(not one.settled for one in found)
            masks = {
                "this method": called_mask(fleet.seen, found),
                "old contrast": old_contrast(fleet.seen),
                "naive fisher": fisher(fleet.seen),
                "mantel haenszel": mantel_haenszel(fleet.seen),
                "oracle": _oracle(fleet),
            }
            for name, mask in masks.items():
                methods.setdefault(name, Counter()).update(_counted(fleet.strengths, mask))
        own = methods["this method"]
        figures.ratio(f"pairs_precision_{size}", own["true"], own["called"], MIN_PRECISION)
        figures.ratio(f"pairs_recall_{size}", own["found"], own["wanted"], least_recall)
        figures.ratio(f"pairs_recall_{size}_oracle", methods["oracle"]["found"], own["wanted"])
        figures.ratio(f"pairs_own_cause_called_{size}", own["own cause"], own["own causes"])
        rows += [[size, name, *_shares(counted)] for name, counted in methods.items()]
    figures.add("pairs_unsettled_unsaid", unsaid, "0", unsaid == 0, f"{unsettled} said")
    _add_rare(figures, arguments.seed, seeds)
    figures.table(
        "Pairs called in runs of the second simulator; strong ones have odds ratios of 4 to 6, medium ones 2.5, and "
        "those with an own cause have no effect and are not counted in the precision.",
        ["runs", "method", "precision", "recall", "of strong ones", "of medium ones", "called with an own cause"],
        rows,
    )


def _add_rare(figures: Figures, seed: int, seeds: Sequence[int]) -> None:
    """What this method and the oracle find in fleets in which failures are rare."""
    for size, (runs, _) in SIZES.items():
        own, oracle = Counter[str](), Counter[str]()
        for number in seeds:
            fleet = simulate_rollouts(RolloutSettings(runs=runs, **RARE), 4000 * seed + number)
            found = called_mask(fleet.seen, find_incompatible_pairs(fleet.seen, seed=1))
            own.update(_counted(fleet.strengths, found))
            oracle.update(_counted(fleet.strengths, _oracle(fleet)))
        figures.ratio(f"pairs_precision_{size}_rare", own["true"], own["called"])
        figures.ratio(f"pairs_recall_{size}_rare", own["found"], own["wanted"])
        figures.ratio(f"pairs_recall_{size}_rare_oracle", oracle["found"], oracle["wanted"])


def called_mask(seen: Observations, found: Sequence[PairFinding]) -> Mask:
    """The pairs that are called incompatible."""
    mask = np.zeros((len(seen.archetypes), len(seen.contexts)), dtype=bool)
    for one in found:
        if one.call is Call.INCOMPATIBLE:
            mask[seen.archetypes.index(one.archetype), seen.contexts.index(one.context)] = True
    return mask


def unsettled_unsaid(seen: Observations, found: Sequence[PairFinding]) -> int:
    """Pairs whose call one more round of the contrasts changes, and whose finding does not say so."""
    judges = PairContrasts(seen, stratify(seen), adjust(seen))
    first = judges.settle()
    changed = find_called(first) != find_called(judges.once(stand_out(first)))
    said = {(one.archetype, one.context) for one in found if not one.settled and one.reason}
    named = {(one.archetype, one.context) for one in found if one.call is not Call.DECLINED}
    pairs = {(seen.archetypes[a], seen.contexts[c]) for a, c in np.argwhere(changed)}
    return len((pairs & named) - said)


def add_figures_of_file(figures: Figures, seen: Observations, strengths: Mapping[tuple[int, int], Strength]) -> None:
    """The same figures for runs of others, with the size in the key as well where it is near one of the usual ones."""
    found = find_incompatible_pairs(seen, seed=1)
    counted = _counted(strengths, called_mask(seen, found))
    nearest = min(SIZES, key=lambda size: abs(np.log(len(seen) / SIZES[size][0])))
    near = abs(np.log(len(seen) / SIZES[nearest][0])) < np.log(MAX_SIZE_RATIO)
    for suffix in ("", f"_{nearest}") if near else ("",):
        figures.ratio(f"pairs_precision{suffix}", counted["true"], counted["called"])
        figures.ratio(f"pairs_recall{suffix}", counted["found"], counted["wanted"])
    figures.ratio("pairs_own_cause_called", counted["own cause"], counted["own causes"])
    unsaid = unsettled_unsaid(seen, found)
    figures.add("pairs_unsettled_unsaid", unsaid, "0", unsaid == 0, f"{sum(not one.settled for one in found)} said")


def _oracle(fleet: RolloutFleet) -> Mask:
    """Failures of each pair against those that the true odds without its own effect give."""
    seen = fleet.seen
    p_values = np.ones((len(seen.archetypes), len(seen.contexts)))
    for a, c in np.ndindex(*p_values.shape):
        chosen = (seen.archetype == a) & seen.in_context[:, c]
        p_values[a, c] = poisson.sf(seen.failed[chosen].sum() - 1, fleet.harmless[chosen, c].sum())
    found: Mask = q_values(p_values) <= MAX_FALSE_RATE
    return found


def _counted(strengths: Mapping[tuple[int, int], Strength], mask: Mask) -> Counter[str]:
    def of(*chosen: Strength) -> Mask:
        found = np.zeros(mask.shape, dtype=bool)
        for pair, strength in strengths.items():
            found[pair] |= strength in chosen
        return found

    own_cause = of(Strength.OWN_CAUSE)
    sets: dict[str, NDArray[np.bool_]] = {
        "true": mask & of(*TRUE),
        "called": mask & ~own_cause,
        "found": mask & of(*WANTED),
        "wanted": of(*WANTED),
        "own cause": mask & own_cause,
        "own causes": own_cause,
        **{f"{one} found": mask & of(one) for one in WANTED},
        **{f"{one} wanted": of(one) for one in WANTED},
    }
    return Counter({name: int(chosen.sum()) for name, chosen in sets.items()})


def _shares(counted: Counter[str]) -> list[str]:
    calls = counted["called"]
    return [
        f"{counted['true'] / calls:.2f} of {calls}" if calls else "no calls",
        f"{counted['found'] / counted['wanted']:.2f}",
        *(f"{counted[f'{one} found'] / counted[f'{one} wanted']:.2f}" for one in WANTED),
        f"{counted['own cause']} of {counted['own causes']}",
    ]
