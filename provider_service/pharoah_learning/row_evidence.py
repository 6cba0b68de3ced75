"""The runs behind a learned row, and what they say: everything that a person needs to judge it.

A pure function of the row and of the trials that were learned from. Counts come from the row, as they were learned. The
blocks of campaigns are matched pairs: within a block, one run of the row is paired with the control that ran next to it
in time on the same node, so that a bad minute or a bad node hits both. A block counts once, whatever its repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import scipy

from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import RowTrials, trials_of
from pharoah_learning.models.confirmation import Evidence
from pharoah_learning.models.matched_pairs import MatchedPairs
from pharoah_learning.models.odds_ratios import OddsRatio, odds_ratio
from pharoah_learning.node_rows import trials_of_node_row
from pharoah_learning.release import LearnedRow
from pharoah_protocol.vocabulary import Outcome, RowKind


@dataclass(frozen=True, kw_only=True)
class RowEvidence:
    """A row with its runs."""

    row: LearnedRow
    odds: OddsRatio
    """The odds of the row against those of its controls."""
    blocks: MatchedPairs
    """Blocks with a run of the row and a control. `unmatched` counts the others."""
    e_value: float
    """What the blocks say (`models.confirmation`): 20 confirms a suspect, 1,000 blocks jobs."""
    trials: tuple[Trial, ...]
    """The runs behind the row; none for a row that rests on no trial of its own."""
    controls: tuple[Trial, ...]


def evidence_of(
    row: LearnedRow, learned_from: Iterable[Trial], returned: Mapping[str, float] | None = None
) -> RowEvidence:
    """The evidence of a row of a release that was learned from these trials. `returned`: as the release has it."""
    found = _trials_of(row, learned_from, returned or {})
    blocks = _pair(row.outcome, found.trials, found.controls)
    return RowEvidence(
        row=row,
        odds=odds_ratio(row.failures, row.runs, row.base_failures, row.base_runs),
        blocks=blocks,
        e_value=Evidence(blocks.against, blocks.for_it).e_value,
        trials=found.trials,
        controls=found.controls,
    )


def _trials_of(row: LearnedRow, learned_from: Iterable[Trial], returned: Mapping[str, float]) -> RowTrials:
    """The runs behind a row, and its controls; none for a row that rests on no trial of its own."""
    if row.kind is RowKind.ARCHETYPE:
        return trials_of(row, learned_from)
    if row.kind is RowKind.NODE:
        return trials_of_node_row(row, list(learned_from), returned)
    return RowTrials((), ())


def _pair(outcome: Outcome, trials: Sequence[Trial], controls: Sequence[Trial]) -> MatchedPairs:
    """How the pairs of blocks ended; for a row that says it works, any failure counts."""
    pairs, against, for_it = 0, 0, 0
    own, others = _by_block(trials), _by_block(controls)
    for place in sorted(own.keys() & others.keys()):
        first = own[place][0]
        nearest = min(others[place], key=lambda trial: (abs(trial.ran_at - first.ran_at), trial.trial_id))
        failed, control_failed = (_has_failed(trial, outcome) for trial in (first, nearest))
        pairs += 1
        against += failed and not control_failed
        for_it += control_failed and not failed
    p = float(scipy.stats.binom.sf(against - 1, against + for_it, 0.5))
    return MatchedPairs(pairs, len(own) - pairs, against, for_it, p)


def _by_block(trials: Sequence[Trial]) -> dict[tuple[str, str], list[Trial]]:
    """Trials of campaigns by block and node, in the order in which they ran. Older trials have no block."""
    found: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda one: (one.ran_at, one.trial_id)):
        if trial.block:
            found[trial.block, trial.node].append(trial)
    return found


def _has_failed(trial: Trial, outcome: Outcome) -> bool:
    return trial.outcome is not Outcome.OK if outcome is Outcome.OK else trial.outcome is outcome
