"""A faulty node counts as found by what a measurement says, and not by its failure."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evaluation.figures import Figures
from evaluation.loop.side_by_side import Stop, Stopped
from evaluation.validation.silent_corruption import (
    FAULTS,
    HEALTHY,
    JOB_FAILED,
    JOB_NODE,
    OTHER_NODE,
    RARE,
    Bench,
    Episode,
    WrongProducts,
    _is_wrong,
    _report,
    _require_silent,
)
from pharoah_benchmarks.micro import Answer
from pharoah_protocol.answer_digests import answer_digest

RIGHT = Answer(seconds=(0.1,), correct=True, digest=answer_digest("torch 2", b"right"))
OTHER_NUMBERS = Answer(seconds=(0.1,), correct=True, digest=answer_digest("torch 2", b"other"))
NOTICED = Answer(correct=False, digest=answer_digest("torch 2", b"other"))


@pytest.mark.parametrize(("answer", "wrong"), [(RIGHT, False), (OTHER_NUMBERS, True), (NOTICED, True)])
def test_a_wrong_answer_or_other_numbers_find_a_node(answer: Answer, wrong: bool) -> None:
    assert _is_wrong(answer, [RIGHT, RIGHT]) is wrong


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([Answer(error="ImportError: torch"), RIGHT, RIGHT], "no answer: ImportError: torch"),
        (
            [Answer(seconds=(0.1,), digest=answer_digest("torch 2", b"other")), RIGHT, RIGHT],
            "does not check what it computes",
        ),
        ([NOTICED, RIGHT, Answer(error="OSError: full")], "no answer: OSError: full"),
        ([NOTICED, NOTICED, RIGHT], "wrong on a healthy node"),
    ],
)
def test_a_micro_benchmark_without_an_answer_finds_nothing(answers: list[Answer], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        _is_wrong(answers[0], answers[1:])


RESULT = '{"outcome": "%s", "steps": 3, "step_seconds": 0.1}\n'


def test_a_job_without_a_step_failed_of_its_fault_only_when_its_loss_was_no_number() -> None:
    _require_silent("mlp", 0, RESULT % "ok", "", True)
    _require_silent("mlp", 0, RESULT % "nan", "", False)
    for code, output, saved in [(0, RESULT % "ok", False), (0, "", False), (0, RESULT % "error", False), (1, "", True)]:
        with pytest.raises(RuntimeError, match=f"mlp ended with {code}, its outcome is .*: no space left"):
            _require_silent("mlp", code, output, "no space left", saved)


def episodes(fault: WrongProducts, *named: str) -> list[Episode]:
    return [Episode("mlp", fault, OTHER_NODE, (one,) if one else (), "wrong", 9) for one in named]


def test_the_micro_benchmark_counts_once_for_each_fault_and_only_replays_can_name_a_node() -> None:
    by_benchmark = dict.fromkeys((*FAULTS, *RARE), False) | {FAULTS[0]: True, RARE[0]: True}
    found = [one for fault in by_benchmark for one in episodes(fault, OTHER_NODE, "", "")]
    failed = [Episode("mlp", FAULTS[0], JOB_NODE, (), JOB_FAILED, 0)] * 4
    figures = Figures("validation silent_corruption")
    _report(figures, [Episode("mlp", HEALTHY, "", (), "same", 9), *found, *failed], by_benchmark)
    shown = {row.key: row.interval for row in figures.rows}
    assert figures.values["found_by_benchmark_ratio"] == pytest.approx(1 / len(FAULTS))
    assert shown["found_by_benchmark_ratio"].endswith(f"n={len(FAULTS)}")
    assert figures.values["found_by_replay_ratio"] == pytest.approx(1 / 3)
    assert figures.values["silent_corruption_found_ratio"] == pytest.approx((2 + len(FAULTS)) / (3 * len(FAULTS)))
    assert figures.values["jobs_that_failed"] == 4
    assert shown["healthy_nodes_named_wrong"] == f"n={len(found) + 1}"


def test_no_program_begins_after_a_stop(tmp_path: Path) -> None:
    stop = Stop()
    bench = Bench(tmp_path, random.Random(1), stop)
    stop.set()
    for step in (
        lambda: bench.save_step("mlp", HEALTHY),
        lambda: bench.episode("mlp", HEALTHY, ""),
        lambda: bench.benchmark(HEALTHY),
    ):
        with pytest.raises(Stopped):
            step()
