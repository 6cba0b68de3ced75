"""The limit of a test runs on the time that it has had, where pytest-timeout counts wall time.

Without a thread, which tests that fork would be warned of: an alarm comes when the wall time is over, and again for
what the test has not had by then.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import pytest

from pharoah_system.had_time import LimitClock

MIN_SECONDS = 1.0
"""Between two looks."""


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Begin the limit of one test. None leaves it to pytest-timeout."""
    if settings.timeout <= 0 or threading.current_thread() is not threading.main_thread():
        return None
    limit = LimitClock(settings.timeout, os.getpid())

    def look(_: int, __: FrameType | None) -> None:
        if left := limit.get_remaining():
            signal.setitimer(signal.ITIMER_REAL, max(MIN_SECONDS, left))
        else:
            pytest.fail(f"Timeout: this test has had {settings.timeout:g} s")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # where pytest-timeout looks for it
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True
