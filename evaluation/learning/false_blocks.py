"""Production runs that mislead, and the randomised cells that decide: no pair without an effect may block.

Three ways to mislead are simulated. A hidden cause acts on one pair alone, so no comparison with other archetypes shows
it. A tenant does not report most of its failures outside one context, so this context looks bad. And minutes are bad:
whatever runs in them fails. Every pair that production runs call or suspect gets pairs of randomised cells, planned and
decided as `campaign confirm` does it. Beside it stands a rule that takes repeats of a cell, one after the other, for
runs of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit

from evaluation.figures import Figures
from evaluation.learning.simulated_runs import FAILING_RATIO, Simulated, simulate
from pharoah_learning.confirmations import ControlRuns, plan_pairs
from pharoah_learning.incompatible_pairs import Call, find_incompatible_pairs
from pharoah_learning.observations import Flags, Observations
from pharoah_learning.pair_decisions import MIN_BLOCKING_NODES, End, first_ends

RUNS = 30_000
FLEETS, QUICK_FLEETS = 12, 3
BIASED_RATIO, BIASED_CONTEXT, BIASED_FAILURE = 0.4, 0.9, 1.8
"""The hidden cause of one pair: how many of the archetype's runs have it, how many of these run in the context, and the
log odds that it adds to a failure."""
UNREPORTED_RATIO = 0.8
"""Failures outside the context that the tenant does not report."""
REPEATS = 5
"""Times that each arm runs, one after the other, for the rule that counts repeats."""
BAD_MINUTE_RATIO = 0.05
"""Pairs in which one arm, with all its repeats, falls into a bad minute."""
NODES = MIN_BLOCKING_NODES
"""So many share the pairs."""


@dataclass
class Confirmed:
    """What became of the pairs that production runs called or suspected."""

    asked: int = 0
    false_asked: int = 0
    """Without an effect."""
    false_blocks: int = 0
    false_by_repeats: int = 0
    """Pairs without an effect that a rule would have blocked which takes the repeats of one block for runs."""
    true_blocks: int = 0
    true_confirmed: int = 0
    """With an effect, confirmed or blocking."""
    blocks: int = 0
    """Blocks of randomised cells that ran, over all pairs."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Pairs without an effect that block after their confirmation, in each kind of misleading runs."""
    misleading: dict[str, Callable[[Simulated, np.random.Generator], Simulated]] = {
        "pair_specific_cause": with_pair_specific_cause,
        "unreported_failures": with_unreported_failures,
        "bad_minutes": lambda fleet, _: fleet,
    }
    rows, false = [], 0
    for name, mislead in misleading.items():
        total = Confirmed()
        for number in range(QUICK_FLEETS if arguments.quick else FLEETS):
            rng = np.random.default_rng([arguments.seed, number])
            fleet = mislead(simulate(RUNS, 2000 * arguments.seed + number, hidden=True), rng)
            _confirm(fleet, total, rng, bad_minutes=name == "bad_minutes")
        false += total.false_blocks
        figures.add(f"false_suspects_{name}", total.false_asked)
        rows.append(
            [
                name.replace("_", " "),
                f"{total.false_asked} of {total.asked}",
                str(total.false_blocks),
                str(total.true_blocks),
                f"{total.true_confirmed} of {total.asked - total.false_asked}",
                f"{total.blocks / max(1, total.asked):.0f}",
            ]
        )
        if name == "bad_minutes":
            figures.add("false_block_rows_counting_repeats", total.false_by_repeats)
    figures.add("false_block_rows", false, "0 after confirmation", false == 0)
    figures.table(
        "Pairs that misleading production runs call or suspect, and what randomised cells make of them.",
        [
            "runs mislead by",
            "asked about without an effect",
            "of these block",
            "true ones that block",
            "true ones confirmed, or blocking",
            "blocks of cells",
        ],
        rows,
    )


def with_pair_specific_cause(fleet: Simulated, rng: np.random.Generator) -> Simulated:
    """A cause that nobody records makes one archetype run more in one context, and fail more."""
    a, c = rng.choice(np.argwhere(~fleet.incompatible))
    seen = fleet.seen
    cause = (seen.archetype == a) & (rng.random(len(seen)) < BIASED_RATIO)
    in_context = seen.in_context.copy()
    in_context[cause, c] = rng.random(int(cause.sum())) < BIASED_CONTEXT
    log_odds = fleet.log_odds + BIASED_FAILURE * cause
    failed = np.where(cause, rng.random(len(seen)) < expit(log_odds), seen.failed)
    return replace(fleet, seen=replace(seen, in_context=in_context, failed=failed), log_odds=log_odds)


def with_unreported_failures(fleet: Simulated, rng: np.random.Generator) -> Simulated:
    """For one archetype, one tenant reports few of the failures that happen outside one context."""
    a, c = rng.choice(np.argwhere(~fleet.incompatible))
    seen = fleet.seen
    tenants = seen.confounders["tenant"]
    theirs = tenants == np.bincount(tenants[seen.archetype == a]).argmax()
    unreported = theirs & (seen.archetype == a) & seen.failed & ~seen.in_context[:, c]
    kept = ~unreported | (rng.random(len(seen)) >= UNREPORTED_RATIO)
    return replace(fleet, seen=_only(seen, kept), log_odds=fleet.log_odds[kept])


def _only(seen: Observations, kept: Flags) -> Observations:
    return replace(
        seen,
        archetype=seen.archetype[kept],
        in_context=seen.in_context[kept],
        confounders={name: codes[kept] for name, codes in seen.confounders.items()},
        failed=seen.failed[kept],
    )


def _confirm(fleet: Simulated, total: Confirmed, rng: np.random.Generator, *, bad_minutes: bool) -> None:
    for one in find_incompatible_pairs(fleet.seen, seed=1):
        if one.call not in (Call.INCOMPATIBLE, Call.SUSPECT):
            continue
        pair = fleet.seen.archetypes.index(one.archetype), fleet.seen.contexts.index(one.context)
        arms = expit(logit(FAILING_RATIO) + np.array([fleet.effects[pair], 0.0]))
        end, by_repeats = _cells(arms, rng, bad_minutes=bad_minutes, total=total)
        total.asked += 1
        if fleet.incompatible[pair]:
            total.true_blocks += end is End.BLOCKS
            total.true_confirmed += end in (End.BLOCKS, End.CONFIRMED)
        else:
            total.false_asked += 1
            total.false_blocks += end is End.BLOCKS
            total.false_by_repeats += by_repeats


def _cells(arms: np.ndarray, rng: np.random.Generator, *, bad_minutes: bool, total: Confirmed) -> tuple[End, bool]:
    """How the confirmation of a pair ends, and whether the rule that counts repeats would have blocked meanwhile."""
    planned = plan_pairs(ControlRuns(0, 0), NODES)
    failed = rng.random((2, planned, REPEATS)) < arms[:, None, None]
    if bad_minutes:
        bad = rng.random(planned) < BAD_MINUTE_RATIO
        failed[rng.integers(2, size=planned)[bad], bad] = True
    suspected, control = failed[:, None, :, 0]
    found = first_ends(np.arange(planned) % NODES, suspected, control, 0, planned)
    pairs = int(found.pairs[0])
    total.blocks += pairs
    by_repeats = failed[0, :pairs].all(axis=-1) & ~failed[1, :pairs].any(axis=-1)
    return End(found.end[0]), bool(by_repeats.any())
