"""Jobs that could only be looked at after their launch, and jobs that can never be: what the provider sees of both."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah.sidecar import exchange_client, verdict_client
from pharoah.sidecar.agent_client import NodeAnswer
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.server import Sidecar
from pharoah_archetypes import Fingerprint
from tests.contract.test_exchange import KNOWN, on_loopback
from tests.harness.loopback import Loopback, ticket

COMPILED: Fingerprint = replace(KNOWN, features={**KNOWN.features, "compiled": "inductor"})
Work = Callable[[Sidecar, Callable[[], list[str]]], Awaitable[None]]


def launched(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Work, **changes: Any) -> None:
    """A job whose dry run failed has been launched; `work` gets its sidecar and the calls the provider has seen."""

    async def answers(*_: Any) -> NodeAnswer:
        return NodeAnswer(ticket(), {})

    def seen() -> list[str]:
        lines = [line for file in (folder / "audit").iterdir() for line in file.read_text().splitlines()]
        return [json.loads(line)["method"] for line in lines]

    async def inside(site: Loopback) -> None:
        sidecar = Sidecar(folder / "sidecar", site.settings(late_ask_seconds=0.3, **changes), bytes(16))
        await sidecar._check({"pending": "no dry run"})
        assert sidecar._verdict.status == "pending" and seen() == []
        await sidecar._launch(1)
        await work(sidecar, seen)
        await sidecar._end_run("ok")

    monkeypatch.setattr(verdict_client, "ask_node", answers)
    on_loopback(folder, inside)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.02)


def test_a_captured_step_is_asked_about_at_a_round_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sidecar: Sidecar, seen: Callable[[], list[str]]) -> None:
        await sidecar._captured(0, KNOWN, frozenset())
        assert sidecar._verdict.status == "pending" and "Evaluate" not in seen(), "not at once"
        await until(lambda: sidecar._verdict.status == "incompatible")
        await until(lambda: "Decide" in seen())
        assert seen().count("Evaluate") == 1

    launched(tmp_path, monkeypatch, work)


def test_a_job_nobody_sees_into_asks_about_nothing_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(sidecar: Sidecar, seen: Callable[[], list[str]]) -> None:
        await sidecar._captured(0, COMPILED, frozenset())
        assert sidecar._verdict.status == "unknown"
        await until(lambda: "Decide" in seen())
        assert seen().count("Evaluate") == 1 and sidecar._verdict.status == "unknown"

    launched(tmp_path, monkeypatch, work)


def test_a_job_that_has_not_stepped_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sidecar: Sidecar, seen: Callable[[], list[str]]) -> None:
        await until(lambda: "JoinRun" in seen())
        assert "Evaluate" not in seen()

    launched(tmp_path, monkeypatch, work)


def swollen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ExchangeClient._call

    async def lying(self: ExchangeClient, method: str, request: Any) -> Any:
        answer = await honest(self, method, request)
        if method == "Evaluate":
            answer.classes[0].evaluated[0] = bytes(70_000)
        return answer

    monkeypatch.setattr(ExchangeClient, "_call", lying)


@pytest.mark.parametrize("lie", [lambda _: None, swollen], ids=["honest", "swollen"])
@pytest.mark.parametrize("changes", [{}, {"share_outcomes": True}, {"privacy": "hashed"}], ids=str)
def test_a_provider_sees_the_same_calls_whether_a_job_can_be_seen_into_or_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[pytest.MonkeyPatch], None],
    changes: dict[str, Any],
) -> None:
    monkeypatch.setattr(exchange_client, "AUDITED_INPUTS", 1)
    lie(monkeypatch)
    calls: list[list[str]] = []
    for name, fingerprint in (("visible", KNOWN), ("compiled", COMPILED)):
        folder = tmp_path / name
        folder.mkdir()

        async def work(sidecar: Sidecar, seen: Callable[[], list[str]], job: Fingerprint = fingerprint) -> None:
            await sidecar._captured(0, job, frozenset())
            await until(lambda: "Decide" in seen())
            calls.append([call for call in seen() if call not in ("JoinRun", "Report", "WatchAlerts")])

        key = str(folder / "provider.pub")
        launched(folder, monkeypatch, work, auditor_endpoint="127.0.0.1:9", auditor_key_file=key, **changes)
    assert Counter(calls[0]) == Counter(calls[1]) and {"Evaluate", "Decide"} <= set(calls[0])
    assert ("GetPseudonymKey" in calls[0]) == ("share_outcomes" in changes)
