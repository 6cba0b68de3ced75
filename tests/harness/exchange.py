"""A sealed release with one row, and calls of the private exchange against it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.exchange_answers import Answer
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.release import LearnedRow, Release
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity
from tests.harness.loopback import Loopback, loopback, node, ticket

KNOWN = Fingerprint(
    "ab" * 16, "12" * 16, "fwd: gemm", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
)

OTHER = Fingerprint(
    "cd" * 16, "34" * 16, "fwd: conv", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
)

ROW = LearnedRow(
    scope=Scope.SERVER,
    group_id=node("n1").facts_id,
    rung=Rung.EXACT,
    tokens=rung_tokens(KNOWN, Rung.EXACT),
    severity=Severity.BLOCK,
    outcome=Outcome.MEMORY,
    failures=5,
    runs=5,
    base_failures=0,
    base_runs=25,
    remedy=1,
)

RELEASE = Release(1, (ROW,))


def on_loopback(
    folder: Path, work: Callable[[Loopback], Awaitable[None]], release: Release | None = RELEASE, **changes: Any
) -> None:
    """Do `work` beside a provider; `changes` are settings of the provider."""

    async def inside() -> None:
        async with loopback(folder, release, **changes) as site:
            await work(site)

    asyncio.run(inside())


async def ask(settings: Settings, fingerprint: Fingerprint = KNOWN) -> Answer:
    provider = ProviderConnection(settings)
    try:
        return await ExchangeClient(provider, settings).ask(fingerprint, ticket())
    finally:
        await provider.channel.close(None)


async def answered(site: Loopback) -> bool:
    """Whether a tenant that asks about the known job has an answer with matches."""
    try:
        return bool((await ask(site.settings())).matches)
    except (VerificationError, UnknownReason):
        return False


async def refused(awaitable: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code(), caught.value.details() or ""
