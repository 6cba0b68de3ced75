"""Runs that join a provider on loopback."""

from __future__ import annotations

import secrets
from typing import Any

from pharoah_protocol.v1 import Consent, JoinRunRequest
from tests.harness.loopback import Loopback, ticket


async def join(site: Loopback, where: str = "n1", who: str = "acme", run_id: bytes = b"", **changes: Any) -> bytes:
    run_id = run_id or secrets.token_bytes(16)
    consent = Consent(beside_job=True, limit_seconds=5)
    request = JoinRunRequest(**{"run_id": run_id, "ticket": ticket(where), "ranks": 1, "consent": consent, **changes})
    await site.call("Runs", "JoinRun", request, who)
    return run_id
