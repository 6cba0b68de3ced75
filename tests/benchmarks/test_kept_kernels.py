"""Inputs that are made once, not in each order beside a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from pharoah_benchmarks.micro import MICRO_BENCHMARKS, MicroBenchmark, _measure
from pharoah_benchmarks.micro._measure import KeptKernels, measure
from pharoah_benchmarks.micro._order import MeasureOrder
from pharoah_benchmarks.micro._place import Place
from pharoah_protocol.vocabulary import DeviceKind

ORDER = MeasureOrder(benchmark="counted", repeats=3, limit_seconds=5.0)


class Counted:
    """A micro-benchmark that counts how often its inputs are made, and its repeats."""

    def __init__(self) -> None:
        self.built = self.repeats = 0

    def build(self, _: Place) -> Callable[[], None]:
        self.built += 1
        return self._repeat

    def _repeat(self) -> None:
        self.repeats += 1


class _Registry(dict[str, MicroBenchmark]):
    @property
    def entries(self) -> dict[str, MicroBenchmark]:
        return self


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    one = Counted()
    entry = replace(MICRO_BENCHMARKS["memory"], name="counted", build=one.build)
    monkeypatch.setattr(_measure, "MICRO_BENCHMARKS", _Registry(counted=entry))
    return one


def test_inputs_are_made_once_for_all_orders_and_used_before_the_first(counted: Counted) -> None:
    kept = KeptKernels()
    kept.prepare()
    assert (counted.built, counted.repeats) == (1, 1)
    for _ in range(2):
        assert len(measure(ORDER, kept=kept).seconds) == 3
    kept.prepare()
    assert (counted.built, counted.repeats) == (1, 1 + 2 * 4)


def test_a_measurement_by_itself_makes_its_own_inputs(counted: Counted) -> None:
    measure(ORDER)
    measure(ORDER)
    assert counted.built == 2


def test_the_rounds_beside_a_job_make_their_inputs_before_the_first_order() -> None:
    rounds = [one for one in MICRO_BENCHMARKS.entries.values() if one.selected and one.device is DeviceKind.CPU]
    assert rounds and all(one.keeps_inputs for one in rounds)


def test_a_gpu_keeps_no_inputs_because_its_memory_belongs_to_the_job() -> None:
    with pytest.raises(ValueError, match="'memory': keeps_inputs: True is invalid"):
        replace(_on_gpu(MICRO_BENCHMARKS["memory"]), keeps_inputs=True)


def _on_gpu(benchmark: MicroBenchmark) -> MicroBenchmark:
    exclusive = MICRO_BENCHMARKS["memory_cuda"].placement
    return replace(benchmark, keeps_inputs=False, placement=exclusive, device=DeviceKind.CUDA)


def test_the_worker_answers_orders_after_it_has_prepared() -> None:
    orders = "\n" + 2 * (json.dumps({"benchmark": "memory", "repeats": 2, "limit_seconds": 5}) + "\n")
    worker = [sys.executable, "-m", "pharoah_benchmarks.micro"]
    done = subprocess.run(worker, input=orders, capture_output=True, text=True, check=True)
    started, *answers = map(json.loads, done.stdout.splitlines())
    assert started["error"] == "" and [len(answer["seconds"]) for answer in answers] == [2, 2]
