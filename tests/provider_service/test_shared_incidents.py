"""One incident for what several slow nodes have in common, and the operator's receiver of incidents."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pharoah_protocol.incident_states import CLEARED
from pharoah_provider.cli import main
from pharoah_provider.domain import Run, SubjectKind, Transition
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.shared_incidents import LOOK_SECONDS, LOOKS
from pharoah_serving.errors import StoreError
from tests.harness.alert_receiver import Receiver
from tests.harness.listings import listed
from tests.harness.monitored import HandClock, MonitoredSite, monitored_site

NODES, BEHIND = 16, 4


async def runs_behind_switches(site: MonitoredSite) -> list[Run]:
    """Sixteen nodes behind four switches, with a run on each that has not agreed to micro-benchmarks."""
    for number in range(NODES):
        await site.add_node(f"n{number:02}", number, places=(f"switch=s{number // BEHIND}",))
    return [await site.join(f"n{number:02}", beside_job=False) for number in range(NODES)]


async def seconds_pass(site: MonitoredSite, runs: list[Run], slow: range, seconds: int) -> None:
    """So many seconds in which the runs of some nodes take twice as long."""
    for _ in range(seconds):
        await site.passes(1.0)
        for number, run in enumerate(runs):
            await site.feel_now(run, 2.0 if number in slow else 1.0)


async def shared(site: MonitoredSite) -> list[tuple[str, str]]:
    return [(row["node"], row["state"]) for row in await listed(site.storage, "alerts") if row["kind"] == "shared"]


def test_a_slow_switch_is_one_incident_until_its_nodes_are_as_fast_as_before(tmp_path: Path) -> None:
    looks = int(LOOK_SECONDS * (LOOKS + 1))
    time = HandClock()

    async def inside() -> None:
        async with monitored_site(tmp_path, time=time) as site:
            runs = await runs_behind_switches(site)
            await seconds_pass(site, runs, range(0), 5)
            assert await shared(site) == []
            await seconds_pass(site, runs, range(4, 8), looks)
            assert await shared(site) == [("switch=s1", "confirmed")]
            (row,) = [row for row in await listed(site.storage, "alerts") if row["kind"] == "shared"]
            assert row["what"] == "4 of 4 nodes with switch=s1 are slow at once"
            assert all("switch" not in state.evidence for state in site.states["n04"]), "it stays with the provider"
            await seconds_pass(site, runs, range(0), looks)
            assert await shared(site) == [("switch=s1", "cleared")]

    asyncio.run(inside())


def test_a_shared_incident_goes_on_while_it_is_not_known_where_its_nodes_are(tmp_path: Path) -> None:
    """A restart, after which agents connect one by one, and a switch that has become so bad that its agents are away,
    do not show that the switch is good again."""
    looks = int(LOOK_SECONDS * (LOOKS + 1))
    time = HandClock()

    async def inside() -> None:
        async with monitored_site(tmp_path, time=time) as site:
            runs = await runs_behind_switches(site)
            await seconds_pass(site, runs, range(4, 8), looks)
            for name in ("n05", "n06", "n07"):
                await site.disconnect(name)
            await seconds_pass(site, runs, range(4, 8), looks)
            assert await shared(site) == [("switch=s1", "confirmed")]
        async with monitored_site(tmp_path, time=time) as again:
            await again.passes(looks)
            assert await shared(again) == [("switch=s1", "confirmed")]


def test_a_slow_node_that_is_away_keeps_no_incident_of_others_open(tmp_path: Path) -> None:
    looks = int(LOOK_SECONDS * (LOOKS + 1))

    async def inside() -> None:
        async with monitored_site(tmp_path, time=HandClock()) as site:
            runs = await runs_behind_switches(site)
            await seconds_pass(site, runs, range(4, 8), looks)
            await seconds_pass(site, runs, range(4, 9), looks)
            assert await shared(site) == [("switch=s1", "confirmed")], "one more slow node makes it no better"
            await site.disconnect("n08")
            for _ in range(looks):
                await site.passes(1.0)
                for number, run in enumerate(runs):
                    if number != 8:
                        await site.feel_now(run, 1.0)
            assert await shared(site) == [("switch=s1", "cleared")]

    asyncio.run(inside())


def test_questions_of_tenants_show_no_slow_switch(tmp_path: Path) -> None:
    looks = int(LOOK_SECONDS * (LOOKS + 1))

    async def inside() -> None:
        async with monitored_site(tmp_path, time=HandClock()) as site:
            runs = await runs_behind_switches(site)
            await seconds_pass(site, runs, range(0), 5)
            for run in runs[4:8]:
                await site.monitor.ask(run)
            await seconds_pass(site, runs, range(0), looks)
            assert await shared(site) == []
            await seconds_pass(site, runs, range(4, 8), looks)
            assert await shared(site) == [("switch=s1", "confirmed")], "they became slow as well"

    asyncio.run(inside())


def test_a_shared_incident_that_cannot_be_stored_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = int(LOOK_SECONDS * (LOOKS + 1))
    put, failures = IncidentBook.put, [True, True]

    async def failing(self: IncidentBook, change: Transition) -> None:
        if change.subject.kind is SubjectKind.SHARED and failures and (change.state is CLEARED) is (len(failures) == 1):
            failures.pop()
            raise StoreError("the disk is full")
        await put(self, change)

    monkeypatch.setattr(IncidentBook, "put", failing)

    async def inside() -> None:
        async with monitored_site(tmp_path, time=HandClock()) as site:
            runs = await runs_behind_switches(site)
            for slow, state in ((range(4, 8), "confirmed"), (range(0), "cleared")):
                with pytest.raises(StoreError):
                    await seconds_pass(site, runs, slow, 2 * looks)
                await seconds_pass(site, runs, slow, 2 * looks)
                assert await shared(site) == [("switch=s1", state)]
            assert not failures

    asyncio.run(inside())


def test_a_receiver_of_the_operator_hears_when_an_incident_begins_and_ends(tmp_path: Path) -> None:
    receiver, time = Receiver(), HandClock()

    async def inside() -> None:
        async with monitored_site(tmp_path, time=time, alert_url=receiver.url) as site:
            runs = await runs_behind_switches(site)
            await seconds_pass(site, runs, range(4, 8), 40)
            await asyncio.to_thread(receiver.received.wait, 10)
            await seconds_pass(site, runs, range(0), 40)

    try:
        asyncio.run(inside())
        alerts = [alert for body in receiver.bodies for alert in body]
        assert {alert["labels"]["subject"] for alert in alerts} == {"switch=s1"}
        assert alerts[0]["annotations"]["summary"] == "4 of 4 nodes with switch=s1 are slow at once"
        assert "endsAt" not in alerts[0] and "endsAt" in alerts[-1]
        assert "acme" not in json.dumps(alerts), "it names no tenant"
    finally:
        receiver.close()


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--alert-url", "alertmanager:9093"])
    assert "--alert-url: the URL does not begin with http:// or https://" in capsys.readouterr().err
