"""What the results of checks of idle nodes are compared with, and what they then say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import CheckResult
from pharoah_provider.monitoring import idle_checks
from pharoah_provider.monitoring.idle_judgement import judge
from tests.harness.monitored import MonitoredSite
from tests.provider_service.test_idle_checks import at_site, hours, incidents


@pytest.fixture(autouse=True)
def _only_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    """One micro-benchmark, so that a node soon has a past in it."""
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: (MICRO_BENCHMARKS["gemm"],))


def test_what_was_measured_before_an_update_is_no_reference(tmp_path: Path) -> None:
    """A new kernel makes all nodes slower for good."""

    async def work(site: MonitoredSite) -> None:
        await hours(site, 6)
        for number in (1, 2):
            await site.disconnect(f"n{number}")
            site.seconds[f"n{number}"] *= 1.1
            await site.add_node(f"n{number}", number, "kernel=2")
        await hours(site, 8)
        assert await incidents(site) == []

    at_site(tmp_path, work)


def test_an_incident_of_an_idle_node_ends_when_its_facts_change(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 6)
        site.seconds["n1"] *= 1.1
        await hours(site, 2)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]
        await site.disconnect("n1")
        await site.add_node("n1", 1, "kernel=2")
        await hours(site, 1)
        assert await incidents(site) == [("n1", "below_fleet", "cleared")]

    at_site(tmp_path, work)


def test_the_baseline_of_a_campaign_on_a_slow_node_does_not_make_it_look_healthy(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 6)
        site.seconds["n1"] *= 1.1
        await hours(site, 2)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]
        slow = BenchmarkResult("o", "n1", "gemm", False, site.time.now, site.time.now, (site.seconds["n1"],) * 30)
        await site.storage.evidence.append_probes([slow] * 4, Purpose.BASELINE)
        await hours(site, 6)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]

    at_site(tmp_path, work)


def result(*seconds: float, error: str = "") -> BenchmarkResult:
    return BenchmarkResult("o", "n1", "gemm", False, 9.0, 10.0, seconds, error)


def test_without_a_past_a_result_is_undecided_and_names_what_is_missing() -> None:
    found = judge(result(*[0.01] * 30), [], {"n1"}, 0.5, 10.0)
    assert (found.result, found.slowdown_ratio) == (CheckResult.UNDECIDED, None)
    assert "3 past runs of the node are needed" in found.reason


def test_a_node_that_makes_few_repeats_does_not_decide_how_many_of_the_others_count() -> None:
    """The first repeat of the node is as fast as those of others, and all later ones are slower."""

    def of(name: str, *seconds: float) -> BenchmarkResult:
        return replace(result(*seconds), node=name)

    fleet = [of(f"n{number}", *[0.01 + number * 1e-6] * 20) for number in range(2, 200)]
    slower = result(0.01, *[0.012] * 19)
    assert judge(slower, fleet, {"n1"}, 0.5, 10.0).result is CheckResult.SLOWER
    assert judge(slower, [*fleet, of("short", 0.01)], {"n1"}, 0.5, 10.0).result is CheckResult.SLOWER


def test_a_measurement_that_failed_says_why() -> None:
    failed = judge(result(error="no space is left"), [], {"n1"}, 0.5, 10.0)
    assert (failed.result, failed.reason) == (CheckResult.UNDECIDED, "no space is left")
