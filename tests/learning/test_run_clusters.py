"""Clusters count, not runs: the statistics, and what they make of pairs and of throughput."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from pharoah_learning.effects import EffectCall, EffectFinding, Measured, find_effects
from pharoah_learning.incompatible_pairs import Call, find_incompatible_pairs
from pharoah_learning.models.run_clusters import difference, score_p_values
from pharoah_learning.observations import Observations
from pharoah_protocol.vocabulary import Grade

HOSTS = 40


def test_no_p_is_smaller_than_equal_signs_in_so_many_clusters_are() -> None:
    for clusters in range(1, 12):
        assert score_p_values(np.full(clusters, 1000.0)) >= 0.5**clusters * (1 - 1e-9)
    assert score_p_values(np.zeros(5)) == 1.0
    assert score_p_values(np.concatenate([np.full(3, 10.0), np.full(500, 0.01)])) > 0.1


def test_the_score_test_keeps_its_level_when_hosts_differ() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(4000, HOSTS)) * rng.gamma(2.0, size=(1, HOSTS))
    assert 0.03 < (score_p_values(scores) < 0.05).mean() < 0.065


def test_a_difference_of_pairs_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(2)
    left, right = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 12)
    hosts = np.tile(np.arange(12), 2)
    found = difference(np.concatenate([left, right]), np.arange(24) < 12, hosts, hosts)
    expected = ttest_rel(left, right)
    assert found.value == pytest.approx((left - right).mean())
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(ttest_1samp(left - right, 0).confidence_interval(0.95))


def test_leaving_out_a_cluster_names_the_one_that_supports_a_difference() -> None:
    values = np.array([9.0, 0.1, 0.1, 0.0, 0.0, 0.0])
    hosts = np.tile(np.arange(3), 2)
    found = difference(values, np.arange(6) < 3, hosts, hosts)
    assert found.worst == 0 and found.least == pytest.approx(0.1) and found.p > 0.1
    alone = difference(values[[0, 3]], np.array([True, False]), np.zeros(2, int), np.zeros(2, int))
    assert np.isnan(alone.least) and alone.p == 1.0


def fleet(seed: int) -> Observations:
    """Runs of 6 archetypes on 40 hosts. Each context is a property of a host, and half of the hosts have it."""
    rng = np.random.default_rng(seed)
    runs = 12_000
    host = rng.integers(0, HOSTS, runs)
    archetype = rng.integers(0, 6, runs)
    of_host = np.stack([rng.permutation(HOSTS) < HOSTS // 2 for _ in range(5)], axis=1)
    failed = rng.random(runs) < 0.03
    archetypes = tuple(f"a{number}" for number in range(6))
    contexts = tuple(f"c{number}" for number in range(5))
    return Observations(archetypes, contexts, archetype, of_host[host], {}, failed, {"host": host})


def of_pair(seen: Observations, *, archetype: int = 0, context: int = 0) -> Call | None:
    names = seen.archetypes[archetype], seen.contexts[context]
    found = find_incompatible_pairs(seen, 1)
    return next((one.call for one in found if (one.archetype, one.context) == names), None)


def test_a_pair_that_fails_on_many_hosts_is_called() -> None:
    seen = fleet(1)
    bad = (seen.archetype == 0) & seen.in_context[:, 0] & (np.random.default_rng(9).random(len(seen)) < 0.3)
    assert of_pair(replace(seen, failed=seen.failed | bad)) is Call.INCOMPATIBLE


@pytest.mark.parametrize("seed", range(5))
def test_a_pair_that_fails_on_one_host_is_declined_and_the_host_is_the_reason(seed: int) -> None:
    seen = fleet(seed)
    hosts = seen.clusters["host"]
    bad = (seen.archetype == 0) & (hosts == hosts[seen.in_context[:, 0]][0])
    broken = replace(seen, failed=seen.failed | bad)
    found = find_incompatible_pairs(broken, 1)
    assert all(one.call is Call.DECLINED for one in found)
    assert any(one.rests_on == "host" and one.reason == "rests on one host" for one in found)


def test_without_the_names_of_hosts_one_bad_host_is_called() -> None:
    calls = 0
    for seed in range(5):
        seen = fleet(seed)
        hosts = seen.clusters["host"]
        bad = (seen.archetype == 0) & (hosts == hosts[seen.in_context[:, 0]][0])
        found = find_incompatible_pairs(replace(seen, failed=seen.failed | bad, clusters={}), 1)
        calls += any(one.call is not Call.DECLINED for one in found)
    assert calls >= 3


def test_a_pair_that_fails_on_three_hosts_is_a_suspect_and_no_more() -> None:
    seen = fleet(3)
    hosts = seen.clusters["host"]
    three = np.unique(hosts[seen.in_context[:, 0]])[:3]
    few = replace(seen, in_context=np.isin(hosts, three)[:, None] & np.array([True] + [False] * 4) | (
        seen.in_context & np.array([False] + [True] * 4)))  # fmt: skip
    bad = (few.archetype == 0) & few.in_context[:, 0]
    assert of_pair(replace(few, failed=few.failed | bad)) is Call.SUSPECT


def test_a_pair_without_a_second_host_to_compare_with_is_declined() -> None:
    seen = fleet(4)
    elsewhere = seen.clusters["host"] == 0
    inside = ~elsewhere[:, None] & np.array([True] + [False] * 4) | (seen.in_context & np.array([False] + [True] * 4))
    bad = (seen.archetype == 0) & ~elsewhere & (np.random.default_rng(5).random(len(seen)) < 0.5)
    assert of_pair(replace(seen, in_context=inside, failed=seen.failed | bad)) in (Call.DECLINED, None)


def measurements(seed: int, *, effect: float = 1.0, hosts: int = 20, runs: int = 400) -> Measured:
    """Runs of two models on hosts that differ by 5 %, with two drivers (a property of the host) and two precisions."""
    rng = np.random.default_rng(seed)
    host = rng.integers(0, hosts, runs)
    driver = np.where(rng.permutation(hosts) < hosts // 2, "d1", "d2")[host]
    precision, model = rng.choice(["fp16", "fp32"], runs), rng.choice(["m1", "m2"], runs)
    log = rng.normal(0, 0.05, hosts)[host] + np.where(model == "m1", 3.0, 0.0) + 0.5 * (precision == "fp16")
    log += np.log(effect) * (driver == "d1") + rng.normal(0, 0.01, runs)
    columns = {"batch": rng.choice(["8", "16"], runs), "precision": precision, "driver": driver}
    return Measured(model, columns, ("precision", "driver"), {"host": host.astype(str)}, np.exp(log))


def one_of(found: list[EffectFinding], column: str, subject: str = "m1") -> EffectFinding:
    return next(one for one in found if (one.column, one.subject) == (column, subject))


def test_an_effect_on_many_hosts_is_called_with_its_size() -> None:
    found = find_effects(measurements(1, effect=1.3))
    driver, precision = one_of(found, "driver"), one_of(found, "precision")
    assert (driver.value, driver.against, driver.call, driver.grade) == ("d1", "d2", EffectCall.CALLED, Grade.MATCHED)
    assert driver.low < 1.3 < driver.high and driver.sensitivity > 1.1
    assert "host" in precision.held_equal and precision.call is EffectCall.CALLED
    assert precision.low < np.exp(0.5) < precision.high and precision.high - precision.low < 0.1


def test_hosts_that_differ_make_no_effects() -> None:
    found = [one for seed in range(120) for one in find_effects(measurements(seed)) if one.column == "driver"]
    assert 2 <= sum(one.p < 0.05 for one in found) <= 26  # 240 comparisons at a level of 5 %, two on the same hosts
    assert sum(one.call is EffectCall.CALLED for one in found) <= 26


def test_an_effect_that_rests_on_one_host_is_declined() -> None:
    seen = measurements(2, effect=2.0)
    one_host = np.unique(seen.clusters["host"][seen.columns["driver"] == "d1"])[0]
    kept = (seen.columns["driver"] == "d2") | (seen.clusters["host"] == one_host)
    found = find_effects(only(seen, kept))
    assert one_of(found, "driver").call is EffectCall.DECLINED
    assert one_of(found, "driver").reason == "rests on one host"


def only(seen: Measured, kept: np.ndarray) -> Measured:
    columns = {name: values[kept] for name, values in seen.columns.items()}
    clusters = {name: values[kept] for name, values in seen.clusters.items()}
    return Measured(seen.subject[kept], columns, seen.factors, clusters, seen.throughput[kept])


def test_columns_that_change_together_are_inseparable() -> None:
    seen = measurements(3, effect=1.5)
    cuda = np.char.replace(seen.columns["driver"], "d", "c")
    found = find_effects(replace(seen, columns={**seen.columns, "cuda": cuda}, factors=(*seen.factors, "cuda")))
    assert one_of(found, "driver").call is EffectCall.INSEPARABLE
    assert one_of(found, "driver").inseparable_from == ("cuda",) and one_of(found, "cuda").inseparable_from == (
        "driver",
    )
    assert one_of(found, "driver").grade is Grade.ASSOCIATION


def test_a_column_that_nobody_has_recorded_lowers_the_grade() -> None:
    seen = measurements(4, effect=1.5)
    found = find_effects(replace(seen, columns={**seen.columns, "batch": np.full(len(seen.subject), "")}))
    assert one_of(found, "driver").call is EffectCall.CALLED
    assert one_of(found, "driver").grade is Grade.ASSOCIATION


def test_an_effect_too_small_to_matter_is_declined() -> None:
    seen = measurements(5, runs=4000)
    log = (
        np.log(seen.throughput)
        + 0.01 * (seen.columns["precision"] == "fp16")
        - 0.5 * (seen.columns["precision"] == "fp16")
    )
    assert one_of(find_effects(replace(seen, throughput=np.exp(log))), "precision").reason == "too small to matter"


def test_runs_of_different_models_are_never_compared_and_order_does_not_matter() -> None:
    seen = measurements(6, effect=1.2)
    other = np.random.default_rng(1).permutation(len(seen.subject))
    assert find_effects(seen) == find_effects(seen)
    shuffled = find_effects(only(seen, other))
    for one, again in zip(find_effects(seen), shuffled, strict=True):
        assert (one.subject, one.column, one.call) == (again.subject, again.column, again.call)
        assert one.ratio == pytest.approx(again.ratio) and one.p == pytest.approx(again.p, rel=1e-6)


def test_nothing_to_compare_gives_nothing() -> None:
    assert find_effects(only(measurements(7), np.zeros(400, dtype=bool))) == []
    seen = measurements(8)
    assert find_effects(replace(seen, columns={"driver": np.full(400, "d1")}, factors=("driver",))) == []
