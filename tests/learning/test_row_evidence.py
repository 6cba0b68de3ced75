"""The runs behind a learned row, and what is computed from them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.models.odds_ratios import odds_ratio
from pharoah_learning.release import LearnedRow
from pharoah_learning.row_evidence import evidence_of
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity
from tests.provider_service.test_learning import trials


def campaign(blocks: int = 6) -> list[Trial]:
    """Blocks on two nodes each of two contexts: flash and math attention at two lengths; one of them fails on `small`.

    Within a block the cells run a minute after each other.
    """
    found = []
    for context in ("small", "large"):
        for node in range(2):
            for block in range(blocks):
                for at, (attention, length) in enumerate((a, n) for a in ("flash", "math") for n in (128, 1024)):
                    fails = context == "small" and (attention, length) == ("math", 1024)
                    one = trials(1, context, "memory" if fails else "ok", length=length, attention=attention)[0]
                    found.append(
                        replace(
                            one,
                            node=f"{context}-{node}",
                            block=f"c/{context}{node}{block}",
                            ran_at=1000.0 * block + 60 * at,
                            trial_id=f"{context}{node}{block}{at}",
                        )
                    )
    return found


def failing(rows: list[LearnedRow]) -> LearnedRow:
    return next(
        row for row in rows if (row.rung, row.scope, row.severity) == (Rung.EXACT, Scope.SERVER, Severity.BLOCK)
    )


def test_a_row_shows_its_trials_and_its_controls() -> None:
    seen = campaign()
    row = failing(learn_incompatibilities(seen))
    found = evidence_of(row, seen)
    assert len(found.trials) == row.runs == 12 and {one.outcome for one in found.trials} == {Outcome.MEMORY}
    assert len(found.controls) == row.base_runs == 60
    assert (found.blocks.pairs, found.blocks.against, found.blocks.for_it, found.blocks.unmatched) == (12, 12, 0, 0)
    share = 0.05 ** (1 / 12)  # the largest chance with which 12 of 12 are still surprising
    assert found.blocks.p == pytest.approx(0.5**12) and found.blocks.sensitivity == pytest.approx(share / (1 - share))
    assert found.e_value > 500 and found.odds.low > 50 and found.odds.high == math.inf


def test_repeats_within_a_block_are_one_pair() -> None:
    seen = campaign(blocks=1)
    repeated = [replace(one, trial_id=f"{one.trial_id}-{n}") for one in seen for n in range(8)]
    row = failing(learn_incompatibilities([*campaign(), *repeated]))
    assert evidence_of(row, repeated).blocks.pairs == 2


def test_a_bad_minute_that_hits_the_control_as_well_counts_for_nobody() -> None:
    seen = [replace(one, outcome=Outcome.MEMORY) if one.node == "small-0" else one for one in campaign()]
    row = failing(learn_incompatibilities(campaign()))
    blocks = evidence_of(row, seen).blocks
    assert (blocks.pairs, blocks.against, blocks.for_it) == (12, 6, 0)


def test_trials_from_before_blocks_were_recorded_make_no_pairs() -> None:
    seen = [replace(one, block="") for one in campaign()]
    found = evidence_of(failing(learn_incompatibilities(seen)), seen)
    assert found.blocks.pairs == 0 and found.e_value == 1 and found.trials


def test_a_row_without_its_trials_shows_its_counts() -> None:
    row = failing(learn_incompatibilities(campaign()))
    found = evidence_of(row, [])
    assert (found.trials, found.controls) == ((), ()) and found.row == row and found.odds.low > 50


def test_every_row_of_a_table_finds_as_many_runs_and_controls_as_it_counted() -> None:
    seen = campaign()
    for row in learn_incompatibilities(seen):
        found = evidence_of(row, seen)
        assert (len(found.trials), len(found.controls)) == (row.runs, row.base_runs), row


def test_the_interval_is_that_of_fisher() -> None:
    """The tea tasting of Fisher (1935): 3 of 4 against 1 of 4. At each end the counts are as unlikely as 2.5 %."""
    found = odds_ratio(3, 4, 1, 4)

    def at_least_three(ratio: float) -> float:
        weights = [math.comb(4, hits) ** 2 * ratio**hits for hits in range(5)]
        return sum(weights[3:]) / sum(weights)

    def at_most_three(ratio: float) -> float:
        weights = [math.comb(4, hits) ** 2 * ratio**hits for hits in range(5)]
        return sum(weights[:4]) / sum(weights)

    assert at_least_three(found.low) == pytest.approx(0.025, rel=1e-6)
    assert at_most_three(found.high) == pytest.approx(0.025, rel=1e-6)
    assert found.value == pytest.approx(3.5 * 3.5 / (1.5 * 1.5))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_an_odds_ratio_is_in_its_interval_and_turns_with_the_groups(a: int, b: int, c: int, d: int) -> None:
    found, turned = odds_ratio(a, a + b, c, c + d), odds_ratio(c, c + d, a, a + b)
    if not a + b or not c + d:
        assert math.isnan(found.value) and math.isnan(found.low)
        return
    assert found.low <= found.value * 1.0001 and found.value <= found.high * 1.0001
    assert found.value == pytest.approx(1 / turned.value)


def test_more_failures_than_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="3 failures in 2 runs"):
        odds_ratio(3, 2, 0, 1)
