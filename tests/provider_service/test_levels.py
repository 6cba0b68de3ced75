from __future__ import annotations

import pytest

from pharoah_benchmarks.micro import suitable
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_provider.domain import Run
from pharoah_provider.monitoring.levels import MAX_ROUNDS, MIN_ERROR, OTHER_JOB_ERROR, ROUNDS, NodeLevels

BENCHMARKS = suitable({DeviceKind.CPU}, beside_job=True)
RUN = Run(b"r" * 16, "acme", "n1", attempt=1, ranks=1, beside_job=True, limit_seconds=5.0)


def learned(levels: NodeLevels, *seconds: float) -> NodeLevels:
    for value in seconds:
        levels.learn(RUN, [BenchmarkResult("o", "n1", b, True, 0.0, 1.0, (value,)) for b in ("gemm", "memory")])
    return levels


def test_a_level_is_what_the_benchmark_showed_beside_this_job() -> None:
    levels = NodeLevels()
    levels.use(Release(1, (), None, (BenchmarkBaseline("n1", "memory", True, 0.01),)))
    assert not levels.is_known(RUN, BENCHMARKS)
    stand_in = levels.find("n1", RUN, "memory")
    assert stand_in is not None and (stand_in.seconds, stand_in.error_ratio) == (0.01, OTHER_JOB_ERROR)
    assert learned(levels, *[0.03] * ROUNDS).is_known(RUN, BENCHMARKS)
    level = levels.find("n1", RUN, "memory")
    assert level is not None and (level.seconds, level.error_ratio) == (0.03, MIN_ERROR)


def test_rounds_that_differ_ask_for_more_and_leave_doubt() -> None:
    levels = learned(NodeLevels(), 0.03, 0.03, 0.05)
    assert not levels.is_known(RUN, BENCHMARKS)
    level = levels.find("n1", RUN, "memory")
    assert level is not None and level.error_ratio > 0.1
    assert learned(levels, *[0.03] * (MAX_ROUNDS - 3)).is_known(RUN, BENCHMARKS)


def test_a_node_that_becomes_slower_while_its_level_is_learned_is_compared_with_what_it_was() -> None:
    levels = learned(NodeLevels(), *[0.03] * ROUNDS, *[0.045] * (MAX_ROUNDS - ROUNDS))
    level = levels.find("n1", RUN, "memory")
    assert level is not None and (level.seconds, level.error_ratio) == (0.03, MIN_ERROR)


def test_a_run_that_is_over_leaves_no_level() -> None:
    levels = learned(NodeLevels(), *[0.03] * ROUNDS)
    levels.forget(RUN.run_id)
    assert levels.find("n1", RUN, "memory") is None


@pytest.mark.parametrize("beside", [True, False])
def test_nothing_is_known_of_a_node_nobody_measured(beside: bool) -> None:
    assert NodeLevels().find("n1", RUN if beside else None, "gemm") is None
