"""The attackers of the evaluation of privacy see what can be seen, and simulated nodes show what agents would send."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from evaluation.privacy.attack_on_times import WINDOW_SECONDS, WINDOWS, Sent, shuffled_ratio, times_advantage
from evaluation.privacy.behaviours import KINDS, SECONDS, behaviours
from evaluation.privacy.guessing import FOLDS, advantage
from evaluation.privacy.run_ends import FACTS, judged_end
from evaluation.privacy.simulated_nodes import BREAKABLE, GOOD_STATE, LEAVING, DeviceState, agent_signals
from evaluation.privacy.simulated_runs import Job
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.agent.signals._device_fields import ThrottleReason
from pharoah_provider.agent.signals._links import SYSFS

RUNS, ARCHETYPES = 1000, 5


@pytest.fixture(scope="module")
def asked() -> np.ndarray:
    return np.random.default_rng(1).choice(ARCHETYPES, RUNS, p=[0.4, 0.2, 0.2, 0.1, 0.1])


def test_noise_gives_no_advantage(asked: np.ndarray) -> None:
    found = advantage(np.random.default_rng(2).normal(size=(RUNS, 20)), asked, ARCHETYPES)
    assert found.value - found.half_width <= 0.01


def test_a_bit_that_one_archetype_raises_is_found(asked: np.ndarray) -> None:
    """One archetype of ten per cent raises it in half of its runs, and all others in a hundredth of theirs."""
    chance = np.random.default_rng(3)
    raised = chance.random(RUNS) < np.where(asked == 3, 0.5, 0.01)
    rows = np.column_stack([raised, chance.normal(size=RUNS)]).astype(float)
    found = advantage(rows, asked, ARCHETYPES)
    assert found.value == pytest.approx(0.045, abs=0.02), "it is 0.05 less the runs of others that raise it"
    assert found.value - found.half_width > 0.01


def test_what_separates_archetypes_for_certain_is_found(asked: np.ndarray) -> None:
    found = advantage(np.eye(ARCHETYPES)[asked], asked, ARCHETYPES)
    assert found.value == pytest.approx(1 - (asked == 0).mean(), abs=0.01)


def test_rows_of_one_job_are_no_jobs_of_their_own(asked: np.ndarray) -> None:
    """Four copies of each job show no more than one of them, so the interval must not become narrower."""
    rows = np.random.default_rng(4).normal(size=(RUNS, 3)) + asked[:, None]
    copies, kinds, jobs = np.tile(rows, (4, 1)), np.tile(asked, 4), np.tile(np.arange(RUNS), 4)
    by_job = advantage(copies, kinds, ARCHETYPES, jobs)
    by_row = advantage(copies, kinds, ARCHETYPES)
    assert by_job.value == by_row.value > 0.1
    assert by_job.half_width == pytest.approx(2 * by_row.half_width)


def test_the_interval_of_times_counts_jobs_and_not_their_windows() -> None:
    """Kinds are known for certain: four of five are gained, each of them in all windows of a job."""

    for period in (1.0, 2.0):
        numbers = range(int(WINDOWS * WINDOW_SECONDS / period))
        jobs = [[Sent(number * (period + 0.1 * kind), number * period) for number in numbers] for kind in range(5)]
        rounds = [jobs] * FOLDS
        found = times_advantage(rounds, period)
        assert found.value == pytest.approx(0.8)
        assert found.runs == FOLDS * 5 * WINDOWS
        assert found.half_width == pytest.approx(1.96 * (0.8 * 0.2) ** 0.5 / (FOLDS * 5) ** 0.5)
        assert shuffled_ratio(rounds, period, found.value, random.Random(7)) == 0.0
        assert shuffled_ratio(rounds, period, 0.0, random.Random(7)) == 1.0


def test_each_trouble_has_its_bit(tmp_path: Path) -> None:
    with agent_signals(tmp_path) as shown:
        assert set(LEAVING) <= shown(GOOD_STATE).keys(), "an agent would read all of them"
        assert not any(shown(GOOD_STATE).values())
        raised = {
            name: {bit for bit, value in shown(GOOD_STATE._replace(broken=frozenset([name]))).items() if value}
            for name in BREAKABLE
            if name != "power supply"
        }
        assert sorted(bit for bits in raised.values() for bit in bits) == sorted(
            {*LEAVING} - {"memory_stalled", "gpu_throttled", "gpu_thermal_slowdown", "gpu_power_brake"}
        )
        assert shown(DeviceState(31, ThrottleReason(0), frozenset()))["memory_stalled"]
        assert not shown(DeviceState(30, ThrottleReason(0), frozenset()))["memory_stalled"]
        hot = ThrottleReason.HARDWARE_SLOWDOWN | ThrottleReason.HARDWARE_THERMAL
        assert shown(GOOD_STATE._replace(throttle=hot))["gpu_thermal_slowdown"]
    assert Path("/sys/class") == SYSFS, "the kernel's own files are read again"


def test_ends_are_judged_as_sidecars_do_it() -> None:
    ends = {name: judged_end(name) for name in FACTS}
    assert ends["own memory limit"] == (EndState.FAILED, Attribution.USER)
    assert ends["device"].attribution is Attribution.NODE
    assert ends["asked to end"].state is EndState.CANCELLED
    assert ends["unknown"].attribution is Attribution.UNKNOWN


def test_a_run_has_every_field_that_is_sent(tmp_path: Path) -> None:
    chance = random.Random(5)
    known = behaviours(chance)
    assert {one.load.heavy for one in known} == set(KINDS)
    with agent_signals(tmp_path) as shown:
        job = Job.start(max(known, key=lambda one: one.step_seconds), chance)
        run = job.seen(chance, shown)
    assert set(LEAVING) <= run.fields.keys()
    assert {len(values) for name, values in run.fields.items() if name.endswith("levels")} == {SECONDS}
