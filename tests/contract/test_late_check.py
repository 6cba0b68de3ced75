"""Jobs that could only be looked at after their launch, and jobs that can never be: what the provider sees of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah._settings import Settings
from pharoah._verdict import Verdict
from pharoah.end_causes import JudgedEnd
from pharoah.findings.rank_differs import RANK_DIFFERS
from pharoah.sidecar import exchange_client, verdict_client
from pharoah.sidecar.agent_client import NodeAnswer
from pharoah.sidecar.check import JobCheck
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.monitored_run import MonitoredRun
from pharoah_archetypes import Fingerprint
from pharoah_protocol.received_profile import ReceivedProfile
from pharoah_protocol.vocabulary import EndState, VerdictStatus
from tests.harness.exchange import KNOWN, on_loopback
from tests.harness.loopback import Loopback, ticket
from tests.harness.until import until

pytestmark = pytest.mark.usefixtures("quick_messages")
COMPILED: Fingerprint = replace(KNOWN, features={**KNOWN.features, "compiled": "inductor"})


class LaunchedJob:
    """The public side of a job that could not be dry-run: its check, its run, and what the provider has seen of it."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.verdicts: list[Verdict] = []
        self.check = JobCheck(bytes(16), settings, self.verdicts.append)
        self._run = MonitoredRun(bytes(16), b"", settings, lambda _: None)
        self._folder = folder

    async def launch(self) -> None:
        verdict = await self.check.ask("", "no dry run")
        assert verdict.status == VerdictStatus.PENDING and self.seen() == []
        client = self.check.client
        assert client.provider is not None and client.node is not None
        join_time = client.join_time()
        self._run.launch(client.provider, client.node.ticket, ranks=1, join_time=join_time)
        self.check.launch(join_time)

    async def end(self) -> None:
        await self._run.end(JudgedEnd(EndState.OK), self.check.client.name)
        await self.check.end()
        await self.check.close()

    def seen(self) -> list[str]:
        """Methods that the provider has answered."""
        lines = [line for file in (self._folder / "audit").iterdir() for line in file.read_text().splitlines()]
        return [json.loads(line)["method"] for line in lines]


Work = Callable[[LaunchedJob], Awaitable[None]]


def launched(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Work, **changes: Any) -> None:
    """Runs `work` with a job that could not be dry-run and has been launched."""

    async def answers(*_: Any) -> NodeAnswer:
        return NodeAnswer(ticket(), ReceivedProfile())

    async def inside(site: Loopback) -> None:
        job = LaunchedJob(folder, site.settings(late_ask_seconds=0.3, **changes))
        await job.launch()
        await work(job)
        await job.end()

    monkeypatch.setattr(verdict_client, "ask_node", answers)
    on_loopback(folder, inside)


def test_a_captured_step_is_asked_about_at_a_round_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(job: LaunchedJob) -> None:
        job.check.capture(0, KNOWN, frozenset())
        assert job.check.verdict.status == VerdictStatus.PENDING and "Evaluate" not in job.seen(), "not at once"
        await until(lambda: job.check.verdict.status == VerdictStatus.INCOMPATIBLE, "the verdict", 30)
        await until(lambda: "Decide" in job.seen(), "the call of Decide", 30)
        assert job.seen().count("Evaluate") == 1

    launched(tmp_path, monkeypatch, work)


def test_a_compiled_job_asks_a_covering_question_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(job: LaunchedJob) -> None:
        job.check.capture(0, COMPILED, frozenset())
        assert job.check.verdict.status == VerdictStatus.UNKNOWN
        await until(lambda: "Decide" in job.seen(), "the call of Decide", 30)
        assert job.seen().count("Evaluate") == 1 and job.check.verdict.status == VerdictStatus.UNKNOWN

    launched(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("step", [KNOWN, COMPILED], ids=["visible", "compiled"])
def test_a_late_verdict_keeps_what_this_machine_has_found_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Fingerprint
) -> None:
    found = RANK_DIFFERS.create(difference="rank 1 calls aten.gelu")

    async def work(job: LaunchedJob) -> None:
        job.check.add_findings(found)
        job.check.capture(0, step, frozenset())
        await until(lambda: job.check.verdict.status != VerdictStatus.PENDING, "the verdict", 30)
        await until(lambda: "Decide" in job.seen(), "the call of Decide", 30)
        assert found in job.check.verdict.findings

    launched(tmp_path, monkeypatch, work)


def test_a_job_that_has_not_stepped_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(job: LaunchedJob) -> None:
        await until(lambda: "JoinRun" in job.seen(), "the call of JoinRun", 30)
        assert "Evaluate" not in job.seen()

    launched(tmp_path, monkeypatch, work)


def oversized(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ExchangeClient._call

    async def changed(self: ExchangeClient, method: str, request: Any) -> Any:
        answer = await honest(self, method, request)
        if method == "Evaluate":
            answer.classes[0].evaluated[0] = bytes(70_000)
        return answer

    monkeypatch.setattr(ExchangeClient, "_call", changed)


@pytest.mark.parametrize("change", [lambda _: None, oversized], ids=["honest", "oversized"])
@pytest.mark.parametrize("changes", [{}, {"share_outcomes": True}, {"privacy": "hashed"}], ids=str)
def test_a_provider_sees_the_same_calls_whether_a_job_can_be_seen_into_or_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
    changes: dict[str, Any],
) -> None:
    monkeypatch.setattr(exchange_client, "AUDITED_INPUTS", 1)
    change(monkeypatch)
    calls: list[list[str]] = []
    for name, fingerprint in (("visible", KNOWN), ("compiled", COMPILED)):
        folder = tmp_path / name
        folder.mkdir()

        async def work(job: LaunchedJob, step: Fingerprint = fingerprint) -> None:
            job.check.capture(0, step, frozenset())
            await until(lambda: "Decide" in job.seen(), "the call of Decide", 30)
            calls.append([call for call in job.seen() if call not in ("JoinRun", "Report", "WatchAlerts")])

        key = str(folder / "provider.pub")
        away = f"unix:{folder}/nobody.sock"
        launched(folder, monkeypatch, work, auditor_endpoint=away, auditor_key_file=key, **changes)
    assert Counter(calls[0]) == Counter(calls[1]) and {"Evaluate", "Decide"} <= set(calls[0])
    assert ("GetPseudonymKey" in calls[0]) == ("share_outcomes" in changes)
