"""Results that sidecars forge, in short: `evaluation hardening --part guest_probes` has all of it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from evaluation.hardening.guest_probes import MANY, MIN_KINDS, SHARE, Tally, across_a_restart, attacked
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import Consent, WatchOrdersRequest
from pharoah_provider.monitoring.guest_results import ProbeRejection
from pharoah_serving.quotas import Limits
from tests.harness.exchange import refused
from tests.harness.guest_runs import ACCEPTED, TOO_MANY, guest_run, joined
from tests.harness.loopback import Loopback, bearer, loopback
from tests.harness.runs import join

REJECTED_A_DAY = 3


def test_every_forgery_is_rejected_for_its_reason_and_honest_results_are_accepted(tmp_path: Path) -> None:
    tally = Tally(random.Random(7))
    asyncio.run(attacked(tmp_path, tally, runs=1, late=2))
    assert asyncio.run(across_a_restart(tmp_path, tally)) == 0
    forged = sum(tally.forged.values())
    assert tally.rejected == tally.forged and tally.as_expected == forged
    assert tally.accepted == tally.honest >= 8
    assert len(tally.forged) >= MIN_KINDS


def test_an_organisation_that_forges_all_day_is_no_longer_answered_and_others_are(tmp_path: Path) -> None:
    few = Limits(organisation_rejected_results=REJECTED_A_DAY)

    async def inside() -> None:
        async with loopback(tmp_path, benchmark_share=SHARE, limits=few) as site, guest_run(site) as run:
            order = await run.next_order()
            forged = replace(run.honest(order), order=replace(order, challenge=bytes(32)))
            answers = [await run.send(forged) for _ in range(REJECTED_A_DAY)]
            assert answers == [ProbeRejection.WRONG_CHALLENGE] * REJECTED_A_DAY
            assert await run.send(run.honest(order)) == TOO_MANY
            async with guest_run(site, "n2", "rival") as other:
                assert await other.send(other.honest(await other.next_order())) == ACCEPTED
        async with loopback(tmp_path, benchmark_share=SHARE, limits=few) as run.site:
            assert await run.send(forged) == TOO_MANY, "a restart gives no new ones"

    asyncio.run(inside())


def test_who_has_not_agreed_gets_no_stream_and_a_key_is_one_or_none(tmp_path: Path) -> None:
    async def stream(site: Loopback, run_id: bytes, who: str = "acme") -> tuple[grpc.StatusCode, str]:
        call = Stub(site.channel, "Runs").WatchOrders(WatchOrdersRequest(run_id=run_id), metadata=bearer(who))
        return await refused(call.read())

    async def inside() -> None:
        async with loopback(tmp_path, benchmark_share=SHARE, limits=MANY) as site:
            run_id = await join(site, consent=Consent(beside_job=True, limit_seconds=5.0))
            assert (await stream(site, run_id))[0] is grpc.StatusCode.FAILED_PRECONDITION
            not_beside = await joined(site, "n2", beside_job=False)
            assert (await stream(site, not_beside.run_id))[0] is grpc.StatusCode.FAILED_PRECONDITION
            async with guest_run(site) as run:
                assert (await stream(site, run.run_id, "rival"))[0] is grpc.StatusCode.NOT_FOUND
                await run.end()
                assert (await stream(site, run.run_id))[0] is grpc.StatusCode.FAILED_PRECONDITION
            for length in (1, 31, 33, 1000):
                with pytest.raises(grpc.aio.AioRpcError, match=r"consent\.probe_key: "):
                    await joined(site, probe_key=bytes(length))

    asyncio.run(inside())
