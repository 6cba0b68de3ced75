from __future__ import annotations

import itertools

import pytest

from pharoah.sidecar.rank_comparison import RankComparison
from pharoah_archetypes import Fingerprint, parse

USUAL = "fwd: emb (gemm act)+ gemm nll\nbwd: grad AR"
ODD = "fwd: emb gemm gemm nll\nbwd: grad AR"


def seen(grammar: str, **features: str) -> Fingerprint:
    skeleton = parse(grammar)
    sizes = {"parameters": 1, "activations": 1}
    return Fingerprint(skeleton.archetype, skeleton.compute, grammar, features, sizes, {"torch": "2.13.0"})


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_odd_one_of_four_is_named_whoever_comes_first(order: tuple[int, ...]) -> None:
    ranks = RankComparison()
    ranks.expect(4)
    found = [ranks.add(rank, seen(ODD if rank == 2 else USUAL)) for rank in order]
    assert found[:3] == [(), (), ()]
    [finding] = found[3]
    assert finding.what == "rank 2 does not run what ranks 0, 1, 3 run: fwd: - act gemm"


@pytest.mark.parametrize(
    ("features", "operators", "difference"),
    [
        ({"dtype": "float32"}, {"aten.relu"}, "dtype is float32; dtype is not bfloat16"),
        ({"dtype": "bfloat16"}, {"aten.gelu"}, "calls aten.gelu; does not call aten.relu"),
    ],
)
def test_a_rank_that_chose_otherwise_is_named(features: dict[str, str], operators: set[str], difference: str) -> None:
    ranks = RankComparison()
    ranks.expect(3)
    for rank in range(2):
        ranks.add(rank, seen(USUAL, dtype="bfloat16"), frozenset({"aten.relu"}))
    [finding] = ranks.add(2, seen(USUAL, **features), frozenset(operators))
    assert finding.what == f"rank 2 does not run what ranks 0, 1 run: {difference}"


def test_the_next_program_is_not_compared_with_the_one_before() -> None:
    """Both have two ranks; so have two captures of a step that has changed."""
    ranks = RankComparison()
    ranks.expect(2)
    assert [ranks.add(rank, seen(USUAL)) for rank in (0, 1)] == [(), ()]
    assert [ranks.add(rank, seen(ODD)) for rank in (0, 1)] == [(), ()]
    ranks.add(0, seen(ODD))
    assert ranks.add(1, seen(USUAL)), "ranks of one program that differ"


def test_equal_ranks_pipelines_and_compiled_steps_are_no_finding() -> None:
    same, pipeline, compiled = RankComparison(), RankComparison(), RankComparison()
    for ranks in (same, pipeline, compiled):
        ranks.expect(2)
        ranks.expect(1)  # a launcher's own process says one
    for rank in range(2):
        assert same.add(rank, seen(USUAL)) == ()
        assert pipeline.add(rank, seen([f"{USUAL}\nopt: P2P", "fwd: P2P gemm nll\nbwd: grad"][rank])) == ()
        assert compiled.add(rank, seen([USUAL, ODD][rank], compiled="yes")) == ()
