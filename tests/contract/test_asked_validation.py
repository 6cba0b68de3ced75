"""When a sidecar asks for a validation: never after an alert of its own machine, unless its user wants that and
micro-benchmarks may find the cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah._alert import Alert
from pharoah.local_alerts import View, detectors
from pharoah.local_alerts._book import AlertBook
from pharoah.local_alerts._readings import MachineReading
from pharoah.sidecar import asked_validation, verdict_client
from pharoah.sidecar.agent_client import NodeAnswer
from pharoah.sidecar.asked_validation import PAUSE_SECONDS, ROUND_SECONDS, AskedValidation, calls_for_validation
from pharoah.sidecar.sidecar import Sidecar
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_protocol.rank_messages import Check, Launch
from pharoah_protocol.received_profile import ReceivedProfile
from pharoah_protocol.vocabulary import Attribution, Resource
from tests.harness.exchange import KNOWN, on_loopback
from tests.harness.loopback import Loopback, ticket
from tests.harness.runs import rows
from tests.harness.until import until

ALERT = Alert(
    alert_id="a", state=CONFIRMED, node_alias="this node", fault_domain=Attribution.NEIGHBOUR, what="slow", evidence="",
    since=1.0, at=2.0, step_ratio=1.5, validation=True,
)  # fmt: skip


async def reported(site: Loopback, seconds: int) -> bool:
    """Whether so many seconds of the run are stored."""
    return sum(json.loads(row)["seconds"] for row in await rows(site, "reports")) >= seconds


def methods(folder: Path) -> list[str]:
    """Calls that the provider has answered."""
    lines = [line for file in (folder / "audit").iterdir() for line in file.read_text().splitlines()]
    return [json.loads(line)["method"] for line in lines]


@pytest.mark.usefixtures("quick_messages")
@pytest.mark.parametrize(
    ("wanted", "alert", "questions"),
    [
        (False, ALERT, 0),
        (True, replace(ALERT, validation=False), 0),
        (True, replace(ALERT, state=CLEARED), 0),
        (True, ALERT, 1),
    ],
    ids=["not wanted", "nothing to find", "over", "wanted"],
)
def test_an_alert_of_the_own_machine_asks_only_where_its_user_wants_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool, alert: Alert, questions: int
) -> None:
    """A real sidecar and a real provider. Minutes are a second long here, and always round."""

    async def answers(*_: Any) -> NodeAnswer:
        return NodeAnswer(ticket(), ReceivedProfile())

    monkeypatch.setattr(verdict_client, "ask_node", answers)
    monkeypatch.setattr(asked_validation, "ROUND_SECONDS", asked_validation.MINUTE_BEGINS_SECONDS)

    async def inside(site: Loopback) -> None:
        sidecar, nobody = Sidecar(tmp_path / "s.sock", site.settings(ask_validation=wanted), bytes(16)), object()
        await sidecar._check(Check(fingerprint=KNOWN.to_json()), nobody)  # type: ignore[arg-type]
        await sidecar._launch(Launch(1), nobody)  # type: ignore[arg-type]
        await until(lambda: reported(site, 1), "the first report", 30)
        sidecar._deliver_own(alert)
        sidecar._deliver_own(alert)
        await until(lambda: reported(site, 4), "further reports", 30)
        await sidecar._end_run()
        assert methods(tmp_path).count("AskValidation") == questions

    on_loopback(tmp_path, inside)


def test_it_is_asked_at_round_minutes_and_every_ten_minutes_at_most() -> None:
    asked, times = AskedValidation(), []
    for tenth in range(40_000):
        asked.wanted = True
        if asked.due(1000 + tenth / 10, join_time=1000.0):
            times.append(tenth / 10)
    assert times == [number * PAUSE_SECONDS for number in range(7)]
    late = AskedValidation(wanted=True)
    assert [late.due(at, 0.0) for at in (1.5, ROUND_SECONDS - 0.1, ROUND_SECONDS + 0.5)] == [False, False, True]


def test_what_a_job_does_to_itself_and_what_the_agent_shows_asks_nothing() -> None:
    """A disk that fills up, and trouble of the node that the provider hears of from the agent, or must not hear of."""
    disk, signals = detectors()["disk"].start(), detectors()["node_signals"].start()
    warm = SignalReading(
        "gpu_software_thermal_slowdown", "gpu0", 1.0, "whether it is warm", Resource.COMPUTE, trouble=True
    )
    book, alerts = AlertBook("run"), list[Alert]()
    for at in range(300):
        machine = MachineReading(free_bytes={"/data": 10**9 - at * 1_000_000})
        view = View(at=at, unix=at, machine=machine, signals=[warm])
        alerts += book.update(at, at, [*disk.look(view), *signals.look(view)])
    assert {alert.resource for alert in alerts} == {Resource.STORAGE, Resource.COMPUTE}
    assert not any(map(calls_for_validation, alerts))
