"""Alerts of the tenant's own machine: forecasts, changes of step times, their causes, and the book of alerts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah.local_alerts import AlertBook, Condition, View, detectors
from pharoah.local_alerts._exhaustion import Supply
from pharoah.local_alerts._lateness import lateness
from pharoah.local_alerts._readings import MachineReading, ProcessReading
from pharoah.local_alerts._step_change import ALLOWANCE, FIRST_WINDOWS, StepChange, _run_length, _standard_bound
from pharoah.local_alerts._step_windows import SKIPPED_STEPS, Moment, RankSteps
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_protocol.rank_messages import CollectiveStart
from pharoah_protocol.vocabulary import Attribution, Resource
from tests.harness.local_views import process_reading

GIB = float(1 << 30)


def _supply(values: list[float]) -> Supply:
    supply = Supply()
    for at, value in enumerate(values):
        supply.add(float(at), value)
    return supply


@given(rate=st.floats(1e-3, 1e3), seconds=st.integers(40, 3000))
@settings(deadline=None)
def test_what_falls_on_a_line_ends_where_the_line_ends(rate: float, seconds: int) -> None:
    """A forecast reaches no further than four times what was seen."""
    to_come = 1.5 * seconds
    found = _supply([rate * (to_come + seconds - at) for at in range(seconds)]).forecast()
    assert found is not None
    assert found.seconds == pytest.approx(to_come, abs=2 + seconds / 50)
    assert found.earliest_seconds < to_come < found.latest_seconds
    assert found.rate == pytest.approx(rate)


def test_most_of_the_real_ends_are_in_their_intervals() -> None:
    """A random walk with drift ends when it ends: the interval of 95 % holds for at least nine of ten."""
    chance, inside, raised = random.Random(5), 0, 0
    for _ in range(200):
        left, values = 6000.0, []
        drift, spread = chance.uniform(2, 20), chance.uniform(0, 5)
        forecast = None
        while left > 0:
            left -= drift + chance.gauss(0, spread)
            values.append(left)
            if forecast is None and len(values) % 5 == 0 and (found := _supply(values).forecast()) is not None:
                forecast = (len(values), found)
        if forecast is not None:
            raised += 1
            at, found = forecast
            inside += at + found.earliest_seconds <= len(values) <= at + found.latest_seconds + 1
    assert raised > 190
    assert inside / raised >= 0.9


@pytest.mark.parametrize(
    "values",
    [
        [8 * GIB] * 600,
        [8 * GIB - (at % 60) * GIB / 100 for at in range(600)],  # a sawtooth: files that rotate
        [8 * GIB - min(at, 60) * GIB / 20 for at in range(600)],  # a cache that has filled
        [8 * GIB - at * 1e5 for at in range(600)],  # a leak that needs a day: not yet
        [5e9 - at * 1e4 for at in range(40_000)],  # what will be full in five days, however long it was seen
    ],
)
def test_what_is_not_used_up_soon_has_no_forecast_at_the_end(values: list[float]) -> None:
    assert _supply(values).forecast() is None


def test_a_long_life_takes_bounded_memory_and_is_still_seen() -> None:
    supply = _supply([1e9 - 1e4 * at for at in range(50_000)])  # as seen for fourteen hours
    assert len(supply._left) <= 576
    assert (found := supply.forecast()) is not None
    assert found.seconds == pytest.approx(50_000, rel=0.05)


def _noisy(chance: random.Random, sigma: float, ratio: float, count: int) -> list[float]:
    return [log(0.1 * ratio) + chance.gauss(0, sigma) for _ in range(count)]


@pytest.mark.parametrize("sigma", [0.002, 0.01, 0.03])
def test_steps_that_take_a_tenth_longer_are_found_within_windows(sigma: float) -> None:
    chance, late = random.Random(3), []
    for _ in range(50):
        change = StepChange()
        for value in _noisy(chance, sigma, 1.0, 60):
            change.add(value)
        assert not change.raised
        for number, value in enumerate(_noisy(chance, sigma, 1.12, 60)):
            change.add(value)
            if change.raised:
                late.append(number)
                break
    assert len(late) == 50
    assert sorted(late)[25] <= 8


def test_a_healthy_run_is_almost_never_raised() -> None:
    """Twenty runs of 2,000 windows: the bound promises one false change in 72,000."""
    chance, raised = random.Random(4), 0
    for _ in range(20):
        change = StepChange()
        for value in _noisy(chance, 0.04, 1.0, 2000):
            change.add(value)
            if change.raised and change.since is not None:
                raised += 1
                change.accept(change.since)
    assert raised <= 2


def test_one_pause_is_never_a_change() -> None:
    change = StepChange()
    for number in range(600):
        change.add(log(0.1) + (log(50.0) if number % 10 == 5 and number > FIRST_WINDOWS else 0.0))
        assert not change.raised


def test_a_run_that_becomes_faster_has_a_new_usual_step() -> None:
    change = StepChange()
    for value in [log(0.2)] * 20 + [log(0.1)] * 30:
        change.add(value)
    assert exp(change.usual) == pytest.approx(0.1)
    for _ in range(8):
        change.add(log(0.13))
    assert change.raised


def test_a_change_ends_when_steps_are_as_fast_as_before() -> None:
    change = StepChange()
    for value in [log(0.1)] * 20 + [log(0.2)] * 20:
        change.add(value)
    assert change.raised
    assert change.since == 21
    for value in [log(0.1)] * 7:
        change.add(value)
    assert not change.raised


def test_a_second_change_soon_after_one_that_was_accepted_is_found() -> None:
    """What was accepted is the usual step at once: nothing that begins meanwhile is taken for usual."""
    change = StepChange()
    for value in [log(0.1)] * 20 + [log(0.12)] * 4:
        change.add(value)
    assert change.raised and change.since == 21
    change.accept(change.since)
    assert not change.raised
    assert (exp(change.usual), change.usual_since) == (pytest.approx(0.12), 21)
    for value in [log(0.12)] * 2 + [log(0.15)] * 4:
        change.add(value)
    assert change.raised and change.since == 27


@pytest.mark.parametrize("windows", [4, 6, 8])
def test_a_run_that_is_faster_now_and_then_is_soon_left_alone(windows: int) -> None:
    """Phases of 20 to 40 s, for an hour and a half: that steps take longer again is no change."""
    change, chance, raised = StepChange(), random.Random(1), []
    for number in range(1080):
        change.add(log(0.1 if number // windows % 2 else 0.13) + chance.gauss(0, 0.02))
        if change.raised and change.since is not None:
            raised.append(number)
            change.accept(change.since)
    assert len(raised) <= 2, raised


def test_accepted_windows_that_spread_more_are_noise() -> None:
    change = StepChange()
    for value in [log(0.1)] * 20:
        change.add(value)
    least = change.bound
    for number in range(9):
        change.add(log(0.15) + (-0.1, 0.0, 0.1)[number % 3])
    assert change.since is not None
    change.accept(change.since)
    assert change.bound > 2 * least


def test_the_average_run_length_of_the_bound_is_that_of_a_simulation() -> None:
    """Siegmund's approximation beside a direct simulation, for a short run length that can be simulated."""
    assert _run_length(_standard_bound(ALLOWANCE / 0.04), ALLOWANCE / 0.04) == pytest.approx(72_000, rel=1e-3)
    chance, lengths = random.Random(2), []
    for _ in range(1000):
        total, length = 0.0, 0
        while total <= 3.0:
            total, length = max(0.0, total + chance.gauss(0, 1) - 0.5), length + 1
        lengths.append(length)
    assert sum(lengths) / len(lengths) == pytest.approx(_run_length(3.0, 0.5), rel=0.15)


def test_lateness_is_the_median_over_the_collectives_of_a_group() -> None:
    def starts(late: int) -> list[CollectiveStart]:
        return [CollectiveStart("0", number, number * 10**9 + late) for number in range(9)]

    alone = CollectiveStart("1", 5, 0)
    found = lateness({0: starts(0), 1: [*starts(30_000_000), alone]})
    assert found == {0: 0.0, 1: pytest.approx(0.03)}


def _condition(key: str = "k") -> Condition:
    return Condition(
        key=key, resource=Resource.COMPUTE, fault_domain=Attribution.NODE, what="slow", where="here", likely="",
        action="", evidence="", since=0.0,
    )  # fmt: skip


def test_an_alert_fires_once_and_is_resolved_once() -> None:
    book, changes = AlertBook("run"), []
    for at in range(100):
        holding = [_condition()] if at < 40 else []
        changes += [(at, alert.state) for alert in book.update(at, at, holding)]
    assert changes == [(2, CONFIRMED), (69, CLEARED)]


def test_a_condition_that_comes_and_goes_does_not_fire_again_at_once() -> None:
    book, fired = AlertBook("run"), 0
    for at in range(3600):
        holding = [_condition()] if at % 60 < 20 else []
        fired += sum(alert.state is CONFIRMED for alert in book.update(at, at, holding))
    assert fired <= 7


def test_a_job_has_a_budget_of_alerts() -> None:
    book, fired = AlertBook("run"), 0
    for at in range(10):
        conditions = [_condition(f"k{number}") for number in range(100)]
        fired += len(list(book.update(at, at, conditions)))
    assert fired == 24


def test_a_window_that_ends_in_the_middle_of_a_long_step_counts_no_step_twice() -> None:
    """Ten steps of 0.1 s, then an evaluation of 6 s within one step; the main thread computes all the time."""
    rank = RankSteps()
    rank.note_step([0.1] * SKIPPED_STEPS)
    steps = {1: [0.1] * 10, 7: [6.0], 8: [0.1] * 10, 9: [0.1] * 10, 10: [0.1] * 10}
    for at in range(11):
        rank.note_step(steps.get(at, []))
        rank.look(Moment(at, process_reading(main_computed_seconds=float(at)), MachineReading(), 0.0))
    before, after = rank.windows
    assert before.computed == pytest.approx(before.took) == pytest.approx(0.1)
    assert after.computed == pytest.approx(after.took)
    assert after.waited == pytest.approx(0.0)


def test_a_leak_below_a_limit_has_a_time() -> None:
    watching, raised = detectors()["memory"].start(), []
    for at in range(300):
        used = at * 1_000_000
        process = process_reading(resident_bytes=(1 << 30) + used, data_free_bytes=1_000_000_000 - used)
        raised += watching.look(View(at=at, unix=at, steps={0: [0.5]}, processes={0: process}))
    assert raised[0].resource is Resource.MEMORY_CAPACITY
    assert raised[0].fault_domain is Attribution.USER
    assert raised[0].failure_from < 1000 < raised[0].failure_until
    assert raised[0].checkpoint


def test_memory_that_others_use_up_is_not_the_jobs_fault() -> None:
    watching, raised = detectors()["memory"].start(), []
    for at in range(300):
        machine = MachineReading(available_bytes=1_000_000_000 - at * 1_000_000)
        view = View(at=at, unix=at, steps={0: [0.5]}, processes={0: process_reading()}, machine=machine)
        raised += watching.look(view)
    assert raised[0].fault_domain is Attribution.NEIGHBOUR


def on_a_gpu(used: float) -> SignalReading:
    words = "the share of its memory that is in use"
    return SignalReading("gpu_memory_used_ratio", "gpu1", used, words, Resource.MEMORY_CAPACITY, False, used_share=True)


def test_a_leak_on_a_gpu_has_a_time() -> None:
    """The agent is asked every other second, and a fiftieth of a percent is lost in each."""
    watching, raised = detectors()["memory"].start(), []
    for at in range(300):
        shown = on_a_gpu(0.1 + 0.002 * (at - at % 2))
        processes = {0: process_reading()}
        raised += watching.look(View(at=at, unix=at, steps={0: [0.5]}, processes=processes, signals=(shown,)))
    assert raised[0].what.startswith("the memory of gpu1 will be full in ")
    assert (raised[0].where, raised[0].fault_domain) == ("gpu1", Attribution.USER)
    assert raised[0].failure_from < 450 < raised[0].failure_until
    assert raised[0].evidence.startswith("12 % more in a minute, over ")
    assert raised[0].checkpoint


def test_one_leak_on_eight_gpus_is_one_alert() -> None:
    """Forecasts differ by noise, so that now one GPU and now another one seems to be full first."""
    watching, book, chance, raised = detectors()["memory"].start(), AlertBook("run"), random.Random(3), []
    for at in range(300):
        used = [0.1 + 0.002 * at + chance.gauss(0, 0.003) for _ in range(8)]
        signals = tuple(replace(on_a_gpu(one), device=f"gpu{gpu}") for gpu, one in enumerate(used))
        view = View(at=at, unix=at, steps={0: [0.5]}, processes={0: process_reading()}, signals=signals)
        raised += book.update(at, at, list(watching.look(view)))
    assert [one.state for one in raised] == [CONFIRMED]


def test_a_limit_that_fills_up_stays_an_alert_when_another_one_will_be_full_earlier() -> None:
    watching, book, raised = detectors()["memory"].start(), AlertBook("run"), []
    for at in range(900):
        used = 0.1 + max(0, at - 600) * 0.005
        process = process_reading(data_free_bytes=3_000_000_000 - at * 2_000_000)
        view = View(at=at, unix=at, steps={0: [0.5]}, processes={0: process}, signals=(on_a_gpu(min(used, 0.99)),))
        raised += book.update(at, at, list(watching.look(view)))
        if used >= 0.95:
            break
    assert [(one.node_alias, one.state) for one in raised] == [("rank 0", CONFIRMED), ("gpu1", CONFIRMED)]


def test_an_allocator_that_takes_memory_in_the_first_steps_is_no_leak() -> None:
    watching = detectors()["memory"].start()
    for at in range(300):
        used = 0.5 + 0.4 * min(at, 20) / 20 if at < 20 else 0.9
        view = View(at=at, unix=at, steps={0: [0.5]}, processes={0: process_reading()}, signals=(on_a_gpu(used),))
        assert not list(watching.look(view)), at


def test_what_grows_before_the_first_step_is_loading() -> None:
    watching = detectors()["memory"].start()
    for at in range(300):
        process = process_reading(data_free_bytes=1_000_000_000 - at * 1_000_000)
        assert not list(watching.look(View(at=at, unix=at, processes={0: process})))


@dataclass
class _Sharing:
    """A job alone on its core, and what the kernel counts of its main thread."""

    _process: ProcessReading = field(default_factory=process_reading)

    def look(self, at: float, step_seconds: float, queued_seconds: float) -> View:
        """The next second: steps of so many seconds, and the time in the queue of the core."""
        of_main = self._process.main_computed_seconds + 1 - queued_seconds
        queued = self._process.main_queued_seconds + queued_seconds
        self._process = replace(
            self._process, computed_seconds=of_main, main_computed_seconds=of_main, main_queued_seconds=queued
        )
        steps = [step_seconds] * round(1 / step_seconds)
        return View(at=at, unix=at, steps={0: steps}, processes={0: self._process})


def test_a_neighbour_that_begins_slowly_is_found_although_at_first_the_job_mostly_computes_longer() -> None:
    """From second 200 on, a step takes 1.3 times as long: the neighbour at first mostly takes the caches of the core,
    and then half of its time."""
    watching, job, raised = detectors()["slow_steps"].start(), _Sharing(), []
    for at in range(300):
        queued = 0.0 if at < 200 else 0.08 if at < 220 else 0.5
        raised += watching.look(job.look(at, 0.13 if at >= 200 else 0.1, queued))
    assert raised and raised[0].resource is Resource.COMPUTE


def test_a_neighbour_that_begins_soon_after_the_job_got_more_work_is_found() -> None:
    """Steps compute for 1.2 times as long from second 200 on, and from second 225 on the core is shared."""
    watching, job, found = detectors()["slow_steps"].start(), _Sharing(), []
    for at in range(300):
        step = 0.1 if at < 200 else 0.12 if at < 225 else 0.18
        found += [(at, one) for one in watching.look(job.look(at, step, 0.06 / 0.18 if at >= 225 else 0.0))]
    at, first = found[0]
    assert 235 <= at <= 250
    assert (first.resource, first.fault_domain) == (Resource.COMPUTE, Attribution.NEIGHBOUR)
    assert first.step_ratio == pytest.approx(1.5, rel=0.05), "as before the neighbour, not as before the work"


def test_a_job_whose_work_grows_again_and_again_has_no_alert() -> None:
    watching, job = detectors()["slow_steps"].start(), _Sharing()
    for at in range(900):
        assert not list(watching.look(job.look(at, 0.05 * 1.15 ** (at // 60), 0.0))), at


def test_a_rank_that_was_stopped_is_named() -> None:
    watching = detectors()["stopped"].start()
    processes = {0: process_reading(), 1: process_reading(stopped=True)}
    view = View(at=1, unix=1, processes=processes, distributed=True)
    assert [one.where for one in watching.look(view)] == ["this node, rank 1"]
    assert not list(watching.look(View(at=2, unix=2, processes={0: process_reading(), 1: process_reading()})))


@pytest.mark.parametrize(
    ("stopped", "running", "distributed", "what"),
    [
        ([0], [], False, "the job is stopped"),
        ([3], [], True, "rank 3 stopped, and the other ranks wait"),
        ([1, 2], [0, 3], True, "ranks 1, 2 stopped, and the other ranks wait"),
        ([0, 1, 2, 3], [], True, "all ranks of the job on this machine are stopped"),
    ],
)
def test_a_job_that_is_stopped_is_one_alert_that_says_who_waits(
    stopped: list[int], running: list[int], distributed: bool, what: str
) -> None:
    processes = {rank: process_reading(stopped=rank in stopped) for rank in stopped + running}
    view = View(at=1, unix=1, processes=processes, distributed=distributed)
    (found,) = detectors()["stopped"].start().look(view)
    assert found.what == what and ("other ranks" in found.action) is ("wait" in what)


def test_trouble_of_a_device_of_the_job_is_named() -> None:
    watching = detectors()["node_signals"].start()
    readings = (
        SignalReading("gpu_throttled", "gpu1", 1.0, "whether it is slowed down", Resource.COMPUTE, trouble=True),
        SignalReading("gpu_throttled", "gpu2", 0.0, "whether it is slowed down", Resource.COMPUTE, trouble=True),
        SignalReading("io_waiting_ratio", "", 0.9, "waiting", Resource.STORAGE, trouble=False),
    )
    (found,) = watching.look(View(at=1, unix=1, signals=readings))
    assert (found.where, found.resource, found.what) == ("gpu1", Resource.COMPUTE, "gpu1: gpu throttled")
