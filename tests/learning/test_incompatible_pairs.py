"""What production runs are taken to say about pairs of an archetype and a context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.learning.simulated_runs import simulate
from pharoah_learning.incompatible_pairs import Call, PairFinding, find_incompatible_pairs
from pharoah_learning.observations import Observations

ARCHETYPES, CONTEXTS = 8, 6
RUNS = 30_000


def observations(seed: int, *, bad: float = 0.25, copied: float | None = None) -> Observations:
    """Runs of which archetype 0 fails in context 0 with the probability `bad`, all others with 5 %.

    Context 1 is a copy of context 0, but for a share of `copied` that is drawn anew; None for an independent one.
    """
    rng = np.random.default_rng(seed)
    archetype = rng.integers(0, ARCHETYPES, RUNS)
    contexts = rng.random((RUNS, CONTEXTS)) < 0.5
    if copied is not None:
        contexts[:, 1] = np.where(rng.random(RUNS) < copied, contexts[:, 1], contexts[:, 0])
    failed = rng.random(RUNS) < np.where((archetype == 0) & contexts[:, 0], bad, 0.05)
    return Observations(
        tuple(f"a{number}" for number in range(ARCHETYPES)),
        tuple(f"c{number}" for number in range(CONTEXTS)),
        archetype,
        contexts,
        {"scale": rng.integers(0, 4, RUNS)},
        failed,
    )


def of_first_pair(found: list[PairFinding]) -> PairFinding:
    return next(one for one in found if (one.archetype, one.context) == ("a0", "c0"))


def called(found: list[PairFinding]) -> dict[tuple[str, str], Call]:
    return {(one.archetype, one.context): one.call for one in found if one.call is not Call.DECLINED}


def test_a_pair_that_fails_is_called_with_its_numbers() -> None:
    seen = observations(1)
    found = find_incompatible_pairs(seen, 1)
    assert called(found) == {("a0", "c0"): Call.INCOMPATIBLE}
    one = of_first_pair(found)
    own, there = seen.archetype == 0, seen.in_context[:, 0]
    assert (one.runs, one.failures) == ((own & there).sum(), (own & there & seen.failed).sum())
    assert (one.other_runs, one.other_failures) == ((own & ~there).sum(), (own & ~there & seen.failed).sum())
    assert one.low < 0.25 / 0.75 / (0.05 / 0.95) < one.high and one.low < one.odds_ratio < one.high
    assert abs(one.matched.net_outcome - 0.2) < 0.04 and one.matched.sensitivity > 3


def test_the_same_runs_and_seed_give_the_same_findings() -> None:
    seen = observations(2)
    assert find_incompatible_pairs(seen, 5) == find_incompatible_pairs(seen, 5)


def test_contexts_that_always_come_together_are_inseparable() -> None:
    found = find_incompatible_pairs(observations(3, copied=0.02), 1)
    assert called(found) == {("a0", "c0"): Call.INSEPARABLE, ("a0", "c1"): Call.INSEPARABLE}
    assert of_first_pair(found).inseparable_from == ("c1",)


def test_a_context_and_its_opposite_are_inseparable() -> None:
    seen = observations(3)
    opposite = seen.in_context.copy()
    opposite[:, 1] = ~opposite[:, 0]
    found = find_incompatible_pairs(replace(seen, in_context=opposite), 1)
    assert called(found) == {("a0", "c0"): Call.INSEPARABLE}


@pytest.mark.parametrize("values", [2, 3])
def test_values_of_one_fact_are_compared_with_each_other(values: int) -> None:
    """Every run has one of the drivers, so their columns and the constant say the same twice."""
    rng = np.random.default_rng(values)
    driver, archetype = rng.integers(0, values, 600), rng.integers(0, 2, 600)
    seen = Observations(
        archetypes=("gpt", "resnet"),
        contexts=tuple(f"driver={470 + number}" for number in range(values)),
        archetype=archetype,
        in_context=driver[:, None] == np.arange(values),
        confounders={},
        failed=(archetype == 0) & (driver == 0) & (rng.random(600) < 0.9),
    )
    found = find_incompatible_pairs(seen, 1)
    assert called(found)["gpt", "driver=470"] is Call.INCOMPATIBLE
    assert [pair for pair, call in called(found).items() if call is Call.INCOMPATIBLE] == [("gpt", "driver=470")]
    assert not any(pair.inseparable_from for pair in found)


def test_a_context_that_comes_with_the_cause_is_declined() -> None:
    found = find_incompatible_pairs(observations(4, copied=0.4), 1)
    of_a0 = {one.context: one.call for one in found if one.archetype == "a0"}
    assert of_a0 == {"c0": Call.INCOMPATIBLE, "c1": Call.DECLINED}


def test_a_context_that_is_bad_for_everybody_is_declined() -> None:
    seen = observations(5, bad=0.05)
    rng = np.random.default_rng(6)
    worse = replace(seen, failed=seen.failed | (seen.in_context[:, 2] & (rng.random(RUNS) < 0.05)))
    found = find_incompatible_pairs(worse, 1)
    assert {one.context for one in found} == {"c2"} and not called(found)


def test_few_failures_are_not_called() -> None:
    seen = observations(7)
    few = np.flatnonzero(seen.archetype == 0)[40:]
    kept = np.setdiff1d(np.arange(RUNS), few)
    small = replace(
        seen,
        archetype=seen.archetype[kept],
        in_context=seen.in_context[kept],
        confounders={"scale": seen.confounders["scale"][kept]},
        failed=seen.failed[kept],
    )
    assert ("a0", "c0") not in called(find_incompatible_pairs(small, 1))


def test_columns_that_never_change_and_no_failures_give_nothing() -> None:
    seen = observations(8)
    constant = replace(seen, in_context=np.ones_like(seen.in_context), confounders={})
    assert find_incompatible_pairs(constant, 1) == []
    assert find_incompatible_pairs(replace(seen, failed=np.zeros(RUNS, dtype=bool)), 1) == []
    assert find_incompatible_pairs(replace(seen, failed=np.ones(RUNS, dtype=bool)), 1) == []


def test_simulated_pairs_that_are_called_are_planted_ones() -> None:
    simulated = simulate(30_000, 11, hidden=True)
    calls = [one for one in find_incompatible_pairs(simulated.seen, 1) if one.call is Call.INCOMPATIBLE]
    names = simulated.seen.archetypes, simulated.seen.contexts
    assert len(calls) >= 4
    assert all(simulated.incompatible[names[0].index(one.archetype), names[1].index(one.context)] for one in calls)
