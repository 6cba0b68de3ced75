"""Faults and alerts of the tenant's own machine: alerts and simple rules have the same time, and nothing goes on after
an interrupt."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any, cast

import pytest

from evaluation.figures import Figures
from evaluation.loop.local_alerts import (
    LEAK_SECONDS,
    MIN_INJECTIONS,
    UNLIKE_SLOW,
    WAIT_SECONDS,
    WRITING_SECONDS,
    Episode,
    _beside_each_other,
    _figures,
    _injected,
    _judged,
)
from evaluation.loop.side_by_side import Stop
from evaluation.loop.step_times import Span, Step, slowed
from evaluation.loop.watched_faults import Fault, Started, faults
from pharoah_protocol.vocabulary import Resource

BEGAN = 1_700_000_000.0
SPAN = Span(BEGAN, BEGAN + WAIT_SECONDS)
FAULT = Fault(kind="cpu_share", dose=1.5, resource=Resource.COMPUTE)


def alert(seconds: float) -> dict[str, Any]:
    """An alert so many seconds after the fault began, as the job writes it."""
    named = {"resource": "compute", "node_alias": "here", "failure_from": 0.0, "failure_until": 0.0}
    return {"state": "confirmed", "at": BEGAN + seconds, **named}


def steps(slow_from: float, until: float) -> list[Step]:
    """Steps of a second, which take 1.5 times as long from a time on; times are seconds after the fault began."""
    found, at = list[Step](), -100.0
    while at < until:
        took = 1.5 if at >= slow_from else 1.0 + 0.01 * (len(found) % 3)
        at += took
        found.append(Step(BEGAN + at, took))
    return found


class HandStop(Stop):
    """Waits by setting a clock forward."""

    def __init__(self) -> None:
        self.at = BEGAN
        super().__init__(lambda: self.at)

    def sleep(self, seconds: float) -> None:
        self.check()
        self.at += max(0.0, seconds)


def stays_on(fault: Fault, folder: Path, *alerts: dict[str, Any]) -> float:
    """How many seconds a fault is on under a job that has these alerts."""
    stop, ended = HandStop(), list[float]()
    (folder / "alerts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in alerts))

    @contextmanager
    def beside(_: Started, dose: float) -> Iterator[None]:
        yield
        ended.append(stop.at - BEGAN)

    started = Started(cast(Any, None), "n1", folder, fault, cast(Any, None))
    span = _injected(started, replace(fault, beside=beside), stop, lambda: stop.at)
    assert span.since == BEGAN and span.until - BEGAN == pytest.approx(min(ended[0], longest(fault)))
    assert (folder / "trigger").exists()
    return ended[0]


def longest(fault: Fault) -> float:
    return LEAK_SECONDS if fault.kind == "leak" else WAIT_SECONDS


@pytest.mark.parametrize("fault", faults(quick=True), ids=lambda fault: fault.kind)
def test_an_alert_ends_a_fault_only_where_no_simple_rule_looks(fault: Fault, tmp_path: Path) -> None:
    on = stays_on(fault, tmp_path, alert(10.0))
    assert on < 11.0 if fault.kind in UNLIKE_SLOW else on == WAIT_SECONDS + WRITING_SECONDS


def test_an_alert_from_before_a_fault_does_not_end_it(tmp_path: Path) -> None:
    assert stays_on(replace(FAULT, kind="stopped_rank"), tmp_path, alert(-3.0)) >= WAIT_SECONDS


def test_a_simple_rule_may_raise_after_the_alert() -> None:
    episode = _judged(FAULT, SPAN, [alert(12.0)], steps(30.0, 95.0), nan)
    assert episode.found and episode.delay == pytest.approx(12.0)
    assert 30 < episode.simple["fixed_ratio"] < 45 and 30 < episode.simple["rolling_z_score"] < 45
    assert 1.2 < episode.slowed < 1.5


def test_alerts_and_rules_are_judged_over_the_same_time() -> None:
    slow = steps(30.0, 95.0)
    raised = _judged(FAULT, SPAN, [], slow, nan).simple["fixed_ratio"]
    for seconds, found in ((raised + 0.01, True), (raised - 0.01, False)):
        episode = _judged(FAULT, Span(BEGAN, BEGAN + seconds), [alert(raised)], slow, nan)
        assert (episode.found, not isnan(episode.simple["fixed_ratio"])) == (found, found)
    early = _judged(FAULT, SPAN, [alert(-2.0)], steps(200.0, 95.0), nan)
    assert not early.found and early.early == 1 and isnan(early.simple["fixed_ratio"])
    both = _judged(FAULT, SPAN, [alert(-2.0), alert(20.0)], steps(0.0, 95.0), nan)
    assert both.delay == pytest.approx(20.0) and both.early == 1


def test_a_ramp_does_not_count_where_it_is_complete() -> None:
    before = [Step(BEGAN - at, 1.0) for at in range(40, 0, -1)]
    ramp = [*before, Step(BEGAN + 3, 1.2), Step(BEGAN + 6, 1.4)]
    assert slowed(ramp, BEGAN, BEGAN + 20) == pytest.approx(1.3)
    complete = [*ramp, Step(BEGAN + 12, 1.6), Step(BEGAN + 14, 1.8), Step(BEGAN + 30, 9.0)]
    assert slowed(complete, BEGAN, BEGAN + 20, ramp=8.0) == pytest.approx(1.7)
    assert slowed(ramp, BEGAN, BEGAN + 20, ramp=8.0) == pytest.approx(1.3), "nothing ended after the ramp"
    assert isnan(slowed(before, BEGAN, BEGAN + 20))


def one_episode(**changes: Any) -> Episode:
    return replace(_judged(FAULT, SPAN, [alert(10.0)], steps(0.0, 95.0), nan), **changes)


@pytest.mark.parametrize(("count", "quick", "code"), [(MIN_INJECTIONS, False, 0), (9, False, 1), (9, True, 0)])
def test_fewer_faults_than_promised_do_not_hold(count: int, quick: bool, code: int) -> None:
    figures = Figures("loop local")
    leak = one_episode(kind="leak", failed_at=BEGAN + 60, failure_from=BEGAN, failure_until=BEGAN + 90)
    rank = one_episode(kind="throttled_rank", where="rank 1", named=Resource.COMPUTE)
    _figures(figures, [leak, rank, *[one_episode(early=1)] * (count - 2)], quick)
    assert figures.values["injections"] == count and figures.values["early_alerts"] == count - 2
    assert figures.write(None) == code


def test_a_failure_on_one_node_ends_the_wait_on_the_other_and_no_further_job_begins() -> None:
    began, waits = list[str](), threading.Event()

    def one(waiting: threading.Event, node: str, name: str, fault: Fault, stop: Stop) -> Episode:
        began.append(f"{name} on {node}")
        if fault.kind == "waits":
            waiting.set()
            stop.sleep(600.0)
        waiting.wait()
        raise RuntimeError("the job does not start")

    planned = [replace(FAULT, kind=kind) for kind in ("waits", "fails", "later", "last")]
    with pytest.raises(RuntimeError, match="does not start"):
        _beside_each_other(planned, ("n1", "n2"), partial(one, waits))
    assert sorted(name.partition(" ")[0] for name in began) == ["0", "1"]


def test_each_fault_is_done_once() -> None:
    planned = [replace(FAULT, dose=float(dose)) for dose in range(7)]
    done = _beside_each_other(planned, ("n1", "n2"), lambda node, name, fault, stop: one_episode(dose=fault.dose))
    assert sorted(episode.dose for episode in done) == [float(dose) for dose in range(7)]
