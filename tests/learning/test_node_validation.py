"""Validation of nodes from results of micro-benchmarks."""

from __future__ import annotations

import numpy as np
import pytest

from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.fleet_comparison import Basis, Difference
from pharoah_learning.node_validation import BenchmarkKey, learn_criteria, validate_node

GEMM, MEMORY = BenchmarkKey("gemm", False), BenchmarkKey("memory", False)


def result(rng: np.random.Generator, node: str, key: BenchmarkKey, at: float, slower: float = 1.0) -> BenchmarkResult:
    seconds = slower * np.exp(rng.normal(0, 0.003) + rng.normal(0, 0.006, 30))
    return BenchmarkResult(f"{node}-{at}", node, key.benchmark, key.beside_job, at, at + 1, tuple(seconds))


@pytest.fixture(scope="module")
def fleet() -> list[BenchmarkResult]:
    rng = np.random.default_rng(1)
    return [result(rng, f"n{n}", key, at) for n in range(160) for key in (GEMM, MEMORY) for at in range(6)]


def test_the_slow_benchmark_of_a_node_is_named(fleet: list[BenchmarkResult]) -> None:
    rng, criteria = np.random.default_rng(2), learn_criteria(reversed(fleet))
    assert criteria.keys() == {GEMM, MEMORY}
    past = [one for one in fleet if one.node == "n7"]
    newest = [result(rng, "n7", GEMM, 9.0), result(rng, "n7", MEMORY, 9.0, slower=1.05)]
    found = validate_node(criteria, newest, past)
    assert (found.difference, found.slower) == (Difference.SLOWER, (MEMORY,))
    assert found.comparisons[MEMORY].basis is Basis.FLEET_AND_PAST
    assert found.q_values[MEMORY] == pytest.approx(2 * found.comparisons[MEMORY].p_value)


def test_the_false_alarms_of_a_node_do_not_grow_with_its_benchmarks(fleet: list[BenchmarkResult]) -> None:
    """Under the level of 0.05 that is asked for; two tests without a correction would give 0.098."""
    rng, criteria = np.random.default_rng(3), learn_criteria(fleet)
    called = [
        validate_node(criteria, [result(rng, "new", key, 9.0) for key in (GEMM, MEMORY)], level=0.05).difference
        for _ in range(1500)
    ]
    assert 0.015 < np.mean([one is Difference.SLOWER for one in called]) < 0.065


def test_what_cannot_be_compared_is_undecided_and_says_why(fleet: list[BenchmarkResult]) -> None:
    rng, criteria = np.random.default_rng(4), learn_criteria(fleet)
    beside = BenchmarkKey("gemm", True)
    failed = BenchmarkResult("o", "n1", "memory", False, 0.0, 1.0, (), "OSError: no memory")
    found = validate_node(criteria, [result(rng, "n1", beside, 9.0), failed])
    assert found.difference is Difference.UNDECIDED
    assert found.comparisons[beside].reason == "no node has been measured so far"
    assert found.comparisons[MEMORY].reason == "OSError: no memory"


def test_wrong_input_is_named(fleet: list[BenchmarkResult]) -> None:
    criteria = learn_criteria(fleet)
    with pytest.raises(ValueError, match="results of one node are needed, not of none"):
        validate_node(criteria, [])
    with pytest.raises(ValueError, match="two results of one benchmark"):
        validate_node(criteria, fleet[:2])
    wrong = BenchmarkResult("o", "n1", "gemm", False, 0.0, 1.0, (float("nan"),) * 30)
    with pytest.raises(ValueError, match="benchmark 'gemm' of node 'n1': seconds: nan"):
        learn_criteria([wrong])
