"""Reports whose times are not of today: a machine was suspended, or its clock was wrong and is corrected."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.contract.test_runs import RELEASE, Listener, seconds_reported
from tests.harness.exchange import on_loopback
from tests.harness.loopback import Loopback
from tests.harness.until import until

pytestmark = pytest.mark.usefixtures("quick_messages")


def test_seconds_of_another_day_do_not_hold_up_those_of_today(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(site: Loopback) -> None:
        listener = Listener(site)
        listener.reporter.second(0, time.time() - 3 * 86_400)
        await until(lambda: listener.reporter.dropped == 1, "the answer", 30)
        listener.reporter.second(1, time.time())

        async def stored() -> bool:
            return await seconds_reported(site) == 1

        await until(stored, "the second of today", 30)
        assert "clock" in caplog.text
        await listener.close()

    on_loopback(tmp_path, work, RELEASE)
