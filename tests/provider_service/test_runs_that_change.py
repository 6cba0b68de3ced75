"""Runs that end, join again or report while the monitor does something about them; and peers that others use."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah_learning.context_rule import ABSENT, ContextRule, IgnoredFact
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import IncidentKind, Report, Run, Subject, Transition
from pharoah_provider.monitoring import intake
from pharoah_provider.monitoring.operator_webhook import outside_alert
from pharoah_provider.monitoring.watched_runs import LOST_SECONDS
from pharoah_serving.errors import NotReady
from tests.harness.loopback import node
from tests.harness.monitored import MonitoredSite, monitored_site
from tests.harness.slow_node import RELEASE, SLOW, at_site


def test_nothing_is_kept_of_a_run_that_ends_while_its_report_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", ranks=3 * intake.ROWS_OF_A_TURN)

        async def ends() -> None:
            site.monitor.unwatch(run.run_id)

        monkeypatch.setattr(intake, "give_way", ends)
        with pytest.raises(NotReady, match="has ended"):
            await site.report(run, [ReportedLevels()] * run.ranks)
        assert run.run_id not in site.monitor._scorer._windows

    at_site(tmp_path, work)


def test_a_report_of_an_earlier_attempt_moves_no_incident_of_the_next_one(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", ranks=4)
        await site.join("n2", run_id=run.run_id)
        reports = [Report(number, 3, site.time.now + number, 1.0, 3.0, 1.0) for number in range(8)]
        await site.monitor.react(run, reports, [False] * 8, [100.0] * 8)
        assert await site.alerts() == []

    at_site(tmp_path, work)


@pytest.mark.parametrize("then", ["reports", "joins again"])
def test_a_run_that_is_heard_while_others_are_lost_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    async def work(site: MonitoredSite) -> None:
        first, second = await site.join("n1"), await site.join("n2")
        end_run = site.storage.runs.end_run

        async def heard_meanwhile(run: Run, *arguments: Any) -> None:
            if then == "reports" and run == first:
                site.monitor.runs.heard(second.run_id)
            await end_run(run, *arguments)
            if then == "joins again" and run == second:
                await site.join("n2", run_id=second.run_id)

        monkeypatch.setattr(site.storage.runs, "end_run", heard_meanwhile)
        await site.passes(LOST_SECONDS + 1)
        goes_on = site.monitor.active(second.run_id)
        assert goes_on is not None and goes_on.attempt == (1 if then == "reports" else 2)
        assert not site.monitor.watches(first)

    at_site(tmp_path, work)


def test_nodes_that_are_slow_at_once_are_compared_with_different_peers(tmp_path: Path) -> None:
    baselines = tuple(
        replace(one, node=name) for one in RELEASE.baselines if one.node == "n1" for name in ("n1", "n2", "n3", "n4")
    )

    async def inside() -> None:
        async with monitored_site(tmp_path, replace(RELEASE, baselines=baselines), share=1.0) as site:
            for number in (1, 2, 3, 4):
                await site.add_node(f"n{number}", number)
            runs = [await site.join("n3"), await site.join("n4")]
            for _ in range(10):
                await site.passes(1.0)
                for run in runs:
                    await site.feel_now(run, 1.0)
            site.seconds["n3"] = site.seconds["n4"] = SLOW
            site.order_seconds, before = 1.0, len(site.ordered)
            for _ in range(10):
                await site.passes(1.0)
                await asyncio.gather(*(site.feel_now(run, 1.6) for run in runs))
            assert {order.node for order in site.ordered[before:]} == {"n1", "n2", "n3", "n4"}
            assert sorted(await site.alerts()) == [("n3", "confirmed"), ("n4", "confirmed")]

    asyncio.run(inside())


def test_an_alert_keeps_its_labels_when_more_is_known_of_its_incident() -> None:
    """An Alertmanager takes an alert with other labels for another alert."""
    first = Transition(
        incident_id="al-1",
        subject=Subject.node("n1"),
        kind=IncidentKind.SLOW,
        state=CONFIRMED,
        raised_by=b"r" * 16,
        what="steps take longer",
        evidence="gemm 2.00x its baseline",
        since=1.0,
        changed_at=2.0,
        step_ratio=1.5,
    )
    later = replace(first, resource=Resource.COMPUTE, evidence="gemm 2.10x its baseline", changed_at=3.0)
    assert outside_alert(first).labels == outside_alert(later).labels
    assert outside_alert(later).annotations["resource"] == "compute"


def test_the_context_of_a_node_follows_the_rule_that_is_served() -> None:
    one, other = node("n1", "kernel=6.1"), node("n2", "kernel=6.2")
    contexts = Contexts()
    assert contexts.find_name(one) == contexts.find_name(one) != contexts.find_name(other)
    ignored = IgnoredFact(name="kernel", values=("6.1", "6.2", ABSENT), reason="it makes no difference")
    contexts.use(ContextRule((ignored,)), ())
    assert contexts.find_name(one) == contexts.find_name(other)
