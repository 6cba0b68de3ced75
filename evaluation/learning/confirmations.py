"""Randomised confirmation of suspects: how often it is wrong, how often it decides, and how many pairs it takes.

The simulated pairs are looked at after every one of them, as a campaign does. The figures `e_process_...` are about the
evidence alone. All others measure the whole procedure: its plan, its nodes and its decisions are those of the provider.
"""

from __future__ import annotations

import argparse

import numpy as np

from evaluation.figures import Figures
from evaluation.learning.simulated_pairs import Batch, Outcomes, Truth, batches, confirmed, fixed_size_pairs
from pharoah_learning.confirmations import Pair, confirmation
from pharoah_learning.models.confirmation import MAX_FALSE_BLOCK_RATE, MAX_FALSE_RATE, e_values
from pharoah_learning.models.no_effect import MATTERING_ODDS_RATIO
from pharoah_learning.pair_decisions import MIN_BLOCKING_NODES, End

SUSPECTS, QUICK_SUSPECTS = 20_000, 2_000
DISCORDANT_PAIRS = 400
"""Pairs after which a campaign would give up."""
CONFIRMED_SUSPECTS, QUICK_CONFIRMED_SUSPECTS = 2_000, 200
"""So many have each truth on `NODES`; a quarter of them on other numbers of nodes."""
NODES = MIN_BLOCKING_NODES
"""The figures of power are about the fewest nodes that may block, on which half of the pairs have to decide."""
OTHER_NODES = (2, 3, 8)
BASE_RATES = (0.02, 0.055)
EFFECTS = (4.0, 9.0)
FIXED_LEVEL, FIXED_POWER = 1e-3, 0.8
MIN_POWER, MAX_PAIRS_RATIO, MAX_REFUTED_RATIO = 0.8, 2.0, 0.02
NAMED_SUSPECTS = 200
"""So many are asked which nodes they name."""
_AGAINST = (End.CONFIRMED, End.BLOCKS)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The evidence alone, then the procedure: power, pairs, and all that may be decided wrongly."""
    rng = np.random.default_rng(arguments.seed)
    _measure_evidence(figures, rng, QUICK_SUSPECTS if arguments.quick else SUSPECTS)
    suspects = QUICK_CONFIRMED_SUSPECTS if arguments.quick else CONFIRMED_SUSPECTS
    found = {truth: confirmed(truth, size, rng) for truth, size in _truths(suspects)}
    _add_power(figures, found)
    _add_wrong_decisions(figures, found)
    _add_named(figures, rng)
    _add_table(figures, found)


def _measure_evidence(figures: Figures, rng: np.random.Generator, suspects: int) -> None:
    first = _first_confirmed(rng.random((suspects, DISCORDANT_PAIRS)) < 0.5)
    false = int((first <= DISCORDANT_PAIRS).sum())
    rate = false / suspects
    figures.add("e_process_type1", rate, f"<= {MAX_FALSE_RATE:g}", rate <= MAX_FALSE_RATE, f"n={suspects}")
    for ratio in (2, 3, 5):
        pairs = _first_confirmed(rng.random((suspects, DISCORDANT_PAIRS)) < ratio / (1 + ratio))
        figures.add(f"e_process_pairs_odds_ratio_{ratio}", float(np.median(pairs)))


def _first_confirmed(against: np.ndarray) -> np.ndarray:
    """The number of the pair that confirms each suspect; one more than there are pairs where none does."""
    failures = np.cumsum(against, axis=1)
    pairs = np.arange(1, against.shape[1] + 1)
    enough = e_values(failures, pairs - failures) >= 1 / MAX_FALSE_RATE
    found: np.ndarray = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, against.shape[1] + 1)
    return found


def _truths(suspects: int) -> list[tuple[Truth, int]]:
    """Truths with how many suspects each has."""
    truths = []
    for nodes, size in ((NODES, suspects), *((other, suspects // 4) for other in OTHER_NODES)):
        for base_rate in BASE_RATES:
            for odds_ratio in (1.0, *EFFECTS, np.inf):
                truths.append((Truth(base_rate=base_rate, odds_ratio=odds_ratio, nodes=nodes), size))
            if nodes >= MIN_BLOCKING_NODES:
                truths.append((Truth(base_rate=base_rate, odds_ratio=1.0, nodes=nodes, sick_nodes=2), size))
    return truths


def _add_power(figures: Figures, found: dict[Truth, Outcomes]) -> None:
    """`Outcomes` that speak against a suspect are confirmed ones and those that block."""
    ratios = []
    for effect in EFFECTS:
        own = {truth: one for truth, one in found.items() if truth.odds_ratio == effect and truth.nodes == NODES}
        power = min(one.ratio(*_AGAINST) for one in own.values())
        sizes = f"n={min(len(one.end) for one in own.values())}"
        holds = power >= MIN_POWER
        figures.add(f"confirm_power_x{effect:g}", power, f">= {MIN_POWER:g}", holds, sizes)
        ratios += [one.pairs.mean() / _fixed(truth) for truth, one in own.items()]
    worst = float(max(ratios))
    figures.add("confirm_pairs_over_fixed_ratio", worst, f"<= {MAX_PAIRS_RATIO:g}", worst <= MAX_PAIRS_RATIO)


def _fixed(truth: Truth) -> int:
    return fixed_size_pairs(truth, FIXED_LEVEL, FIXED_POWER)


def _add_wrong_decisions(figures: Figures, found: dict[Truth, Outcomes]) -> None:
    true = [one for truth, one in found.items() if truth.odds_ratio >= MATTERING_ODDS_RATIO]
    _add_most(figures, "confirm_refuted_true_ratio", true, MAX_REFUTED_RATIO, End.REFUTED)
    for name, sick in (("", 0), ("_two_gray", 2)):
        none = [one for truth, one in found.items() if truth.odds_ratio == 1 and truth.sick_nodes == sick]
        _add_most(figures, f"confirm_false_blocks{name}_ratio", none, MAX_FALSE_BLOCK_RATE, End.BLOCKS)
        _add_most(figures, f"confirm_false_confirmed{name}_ratio", none, MAX_FALSE_RATE, *_AGAINST)
        if not sick:
            figures.add("confirm_refuted_without_effect_ratio", _share(none, End.REFUTED))


def _share(outcomes: list[Outcomes], *ends: End) -> float:
    return sum(one.count(*ends) for one in outcomes) / sum(len(one.end) for one in outcomes)


def _add_most(figures: Figures, key: str, outcomes: list[Outcomes], most: float, *ends: End) -> None:
    ratio = _share(outcomes, *ends)
    figures.add(key, ratio, f"<= {most:g}", ratio <= most, f"n={sum(len(one.end) for one in outcomes)}")


def _add_named(figures: Figures, rng: np.random.Generator) -> None:
    """Whether two sick nodes are named as what fails, by what `pharoah-provider confirmations` prints."""
    truth = Truth(base_rate=BASE_RATES[0], odds_ratio=1.0, nodes=NODES, sick_nodes=2)
    named = [_named_nodes(batch, number) for batch in batches(truth, NAMED_SUSPECTS, rng) for number in range(10)]
    figures.ratio("confirm_two_gray_named_ratio", sum(nodes == ("0", "1") for nodes in named), len(named))


def _named_nodes(batch: Batch, number: int) -> tuple[str, ...]:
    pairs = [
        Pair(node=str(node), suspected_failed=bool(suspected), control_failed=bool(control))
        for node, suspected, control in zip(batch.nodes, batch.suspected[number], batch.control[number], strict=True)
    ]
    return confirmation(pairs, "0", len(pairs)).nodes


def _add_table(figures: Figures, found: dict[Truth, Outcomes]) -> None:
    rows = []
    for truth, one in found.items():
        true = truth.odds_ratio > 1
        shares = [f"{one.ratio(end):.3f}" for end in (End.CONFIRMED, End.BLOCKS, End.REFUTED, End.UNDECIDED)]
        name = "always fails" if np.isinf(truth.odds_ratio) else f"{truth.odds_ratio:g}"
        rows.append(
            [
                str(truth.nodes),
                f"{truth.base_rate:.1%}",
                f"{name}, two sick nodes" if truth.sick_nodes else name,
                *shares,
                f"{one.pairs.mean():.0f}",
                f"{one.planned:.0f}",
                str(_fixed(truth)) if true else "",
            ]
        )
    figures.table(
        "Simulated suspects and what became of them. The last column is the baseline: the pairs of McNemar's exact "
        f"test with a fixed number of pairs, level {FIXED_LEVEL:g}, power {FIXED_POWER:g}, which no sick node may "
        "disturb.",
        [
            "nodes",
            "control fails",
            "odds ratio",
            "confirmed",
            "blocks",
            "refuted",
            "undecided",
            "pairs used",
            "pairs planned",
            "fixed size",
        ],
        rows,
    )
