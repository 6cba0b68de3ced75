"""How sidecars come back to a provider that restarts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from pharoah._settings import Settings
from pharoah.sidecar import run_reporter
from pharoah.sidecar.run_reporter import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, RunReporter
from pharoah_protocol.v1 import NodeTicket

REPORTERS = 100
FAILURES = 6


def away(*_: Any, **__: Any) -> Any:
    raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())


class AwayStub:
    """A provider that is away."""

    def __init__(self, *_: Any) -> None:
        pass

    def __getattr__(self, method: str) -> Any:
        return away


@pytest.mark.parametrize("task", ["_listen", "_report"])
def test_all_sidecars_of_a_provider_that_restarts_come_back_at_different_times(
    monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    pauses: list[list[float]] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        current = asyncio.current_task()
        if current is not None and task in current.get_name():
            pauses[int(current.get_name().split()[1])].append(seconds)
            if len(pauses[int(current.get_name().split()[1])]) > FAILURES:
                await asyncio.Event().wait()
        await sleep(0)

    async def all_reporters() -> None:
        provider = SimpleNamespace(channel=None, metadata=(), timeout=1.0, call=away)
        numbers = random.Random(7)
        tasks = []
        for number in range(REPORTERS):
            pauses.append([])
            drawn = random.Random(numbers.random())
            settings = Settings(node_socket="")
            reporter = RunReporter(provider, bytes(16), b"", settings, print, drawn)  # type: ignore[arg-type]
            arguments = (NodeTicket(),) if task == "_report" else ()
            tasks.append(asyncio.create_task(getattr(reporter, task)(*arguments), name=f"{task} {number}"))
        while any(len(one) <= FAILURES for one in pauses):
            await sleep(0.01)
        for running in tasks:
            running.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    monkeypatch.setattr(run_reporter, "Stub", AwayStub)
    monkeypatch.setattr(run_reporter.asyncio, "sleep", pause)
    asyncio.run(all_reporters())
    for attempt, limit in ((1, FIRST_PAUSE_SECONDS), (FAILURES, MAX_PAUSE_SECONDS)):
        fractions = [one[attempt] / limit for one in pauses]
        assert min(fractions) >= 0.5 and max(fractions) <= 1
        tenths = Counter(int((fraction - 0.5) * 20) for fraction in fractions)
        assert len(tenths) == 10 and max(tenths.values()) <= 25
