"""What counts in the whole loop: alerts after a degradation began, answers that say why, jobs that still ran."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from math import isnan, nan
from typing import Any

import pytest

from evaluation.figures import Figures
from evaluation.loop.detection import Injection, _cost_figure, _detection_figures, confirmed_at, heard_at
from evaluation.loop.run import is_honest, went_on
from pharoah.sidecar.exchange_client import Answer, Match
from pharoah.sidecar.log_client import ServedEpoch
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_protocol.tables.epoch_head import EpochHead
from pharoah_protocol.tables.rows import VerdictRow
from pharoah_protocol.vocabulary import Outcome, Rung, Severity

BEGAN = 1_700_000_000.4
FOUND = Injection(
    number=0,
    node="n1",
    peer="n2",
    slowdown=1.6,
    ramp=0.0,
    began=BEGAN,
    delay=20.0,
    heard=20.0,
    early=False,
    seen=1.6,
    slowed=1.6,
    suspected_with_all=1.0,
    suspected_with_levels=5.0,
    peer_alerted=False,
    cleared=8.0,
)
MISSED = replace(FOUND, delay=nan, heard=nan, cleared=nan)


def incident(state: str, seconds: float) -> dict[str, Any]:
    """An incident that changed so many seconds after the degradation began."""
    return {"state": state, "changed_at": BEGAN + seconds}


def printed(seconds: float) -> str:
    """An alert that a job printed so many seconds after the degradation began."""
    return time.strftime("%H:%M:%S pharoah CONFIRMED  steps are slow\n", time.localtime(BEGAN + seconds))


def test_an_incident_of_before_is_no_detection() -> None:
    assert isnan(confirmed_at([incident("confirmed", -30.0)], BEGAN))
    assert confirmed_at([incident("confirmed", -30.0), incident("confirmed", 12.0)], BEGAN) == BEGAN + 12.0
    assert isnan(confirmed_at([incident("suspected", 3.0), incident("cleared", 9.0)], BEGAN))


def test_an_alert_is_heard_from_the_second_of_the_degradation_on() -> None:
    assert isnan(heard_at(printed(-1.0), BEGAN)), "the second before it"
    assert heard_at(printed(-1.0) + printed(0.0) + printed(7.0), BEGAN) == int(BEGAN)


def test_the_jobs_own_clock_says_which_degradations_are_strong() -> None:
    reported_less = replace(MISSED, slowed=1.7, seen=1.2)
    reported_more = replace(MISSED, slowed=1.3, seen=1.9)
    stood_still = replace(MISSED, slowed=nan, seen=1.0)
    figures = Figures("loop detection")
    _detection_figures(figures, [FOUND, FOUND, reported_less, reported_more, stood_still])
    assert figures.values["detected_strong_ratio"] == pytest.approx(2 / 4)
    assert figures.values["detected_ratio"] == pytest.approx(2 / 5)


def test_early_alerts_are_printed() -> None:
    figures = Figures("loop detection")
    _detection_figures(figures, [FOUND, replace(MISSED, early=True)])
    assert figures.values["early_alerts"] == 1 and figures.values["detected_ratio"] == 0.5


def test_jobs_without_a_micro_benchmark_say_nothing_of_its_cost() -> None:
    figures = Figures("loop detection")
    _cost_figure(figures, [nan, 1.2, 1.0, 1.1])
    assert figures.values["micro_benchmark_cost_ratio"] == 1.1
    assert figures.rows[0].interval == "[1.00, 1.20] n=3 of 4"
    _cost_figure(figures, [nan, nan])
    assert isnan(figures.values["micro_benchmark_cost_ratio"]) and figures.rows[1].interval == "n=0 of 2"


SERVED = ServedEpoch(EpochHead(3, 2, 0, 1, ()), b"", b"", b"", b"", frozenset())
OK = VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 9, 0, 40)
MAJOR = Match("arch", "major", "server", VerdictRow(Severity.OK, Outcome.OK, Rung.MAJOR, 0, 99, 0, 0))
BANDS = (Match("band", "minor", "server", OK), Match("band", "minor", "server", OK))


@pytest.mark.parametrize(("matches", "honest"), [((), True), (BANDS, True), ((MAJOR,), False)])
def test_an_unknown_is_honest_when_the_job_has_not_run(matches: tuple[Match, ...], honest: bool) -> None:
    verdict = verdict_from_rows(Answer(SERVED, matches, 4000), "ab")
    assert verdict.status == "unknown" and is_honest(asdict(verdict)) is honest


def test_a_check_that_failed_is_not_honest_ignorance() -> None:
    reason = "the provider answered FAILED_PRECONDITION: nothing has been released yet"
    assert not is_honest({"status": "unknown", "reason": reason})
    assert not is_honest(
        {"status": "compatible", "reason": "no job similar to this one has run on nodes like this one"}
    )


RESULT = '{"outcome": "%s", "steps": 9, "step_seconds": 0.1}\n'


@pytest.mark.parametrize(
    ("reported", "running", "code", "outcome"),
    [(False, True, 0, "ok"), (True, False, 0, "ok"), (True, True, 1, "ok"), (True, True, 0, "error")],
)
def test_a_job_outlives_the_provider_only_when_it_ran_at_the_kill(
    reported: bool, running: bool, code: int, outcome: str
) -> None:
    assert went_on(True, True, 0, RESULT % "ok")
    assert not went_on(reported, running, code, RESULT % outcome)
