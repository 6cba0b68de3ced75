"""What was acknowledged about the end of a run is stored, once, however often the call is cancelled and sent again."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path

import grpc.aio
import pytest

from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.v1 import EndRunRequest
from pharoah_protocol.v1 import EndState as EndStateCode
from pharoah_provider.monitoring import watched_runs
from tests.harness.exchange import RELEASE, on_loopback, refused
from tests.harness.loopback import Loopback
from tests.harness.runs import join, may_vote, rows
from tests.harness.until import until

pytestmark = pytest.mark.usefixtures("minute_long_runs")
OK, FAILED = EndStateCode.END_STATE_OK, EndStateCode.END_STATE_FAILED


def ending(run_id: bytes, state: EndStateCode.ValueType = OK) -> EndRunRequest:
    """The end of a run, shared under a pseudonym of its own."""
    pseudonym = (2 * run_id)[:PSEUDONYM_BYTES].ljust(PSEUDONYM_BYTES, b"p")
    return EndRunRequest(run_id=run_id, state=state, period=period_at(time.time()), pseudonym=pseudonym)


async def outcomes(site: Loopback) -> Counter[str]:
    """How many runs are counted, by pseudonym."""
    found = Counter[str]()
    for row in map(json.loads, await rows(site, "outcomes")):
        found[row["name"]] += row["runs"]
    return found


async def end_states(site: Loopback) -> list[str | None]:
    return [json.loads(row)["end_state"] for row in await rows(site, "runs")]


def test_an_end_that_is_cancelled_anywhere_and_sent_again_is_counted_once(tmp_path: Path) -> None:
    draw = random.Random(1)

    async def work(site: Loopback) -> None:
        for _ in range(25):
            run_id = await join(site)
            await may_vote(site, run_id)
            call = asyncio.create_task(site.call("Runs", "EndRun", ending(run_id)))
            await asyncio.sleep(draw.uniform(0.0, 0.006))
            call.cancel()
            await asyncio.wait({call})
            await site.call("Runs", "EndRun", ending(run_id))
        counted = await outcomes(site)
        assert len(counted) == 25 and set(counted.values()) == {1}
        assert await end_states(site) == ["ok"] * 25

    on_loopback(tmp_path, work, RELEASE)


def test_a_run_that_the_provider_took_for_lost_can_still_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        await may_vote(site, run_id)
        with monkeypatch.context() as patch:
            patch.setattr(watched_runs, "LOST_SECONDS", 0.0)

            async def lost() -> bool:
                return await end_states(site) == ["lost"]

            await until(lost, "the run to be lost")
        for _ in range(2):
            await site.call("Runs", "EndRun", ending(run_id, FAILED))
        assert list((await outcomes(site)).values()) == [1] and await end_states(site) == ["failed"]

    on_loopback(tmp_path, work, RELEASE)


def test_an_outcome_that_contradicts_the_end_that_stands_is_not_acknowledged(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        await may_vote(site, run_id)
        await site.call("Runs", "EndRun", EndRunRequest(run_id=run_id, state=OK))
        code, message = await refused(site.call("Runs", "EndRun", ending(run_id, FAILED)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "has ended as ok" in message
        await site.call("Runs", "EndRun", ending(run_id, OK))
        assert list((await outcomes(site)).values()) == [1]

    on_loopback(tmp_path, work, RELEASE)
