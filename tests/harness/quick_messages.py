"""Tenants whose messages leave sooner: their times are fixed, and long where a person does not notice them."""

from __future__ import annotations

import pytest

FRACTION = 0.05


@pytest.fixture
def quick_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of the time until a run joins, decides, reports and calls again: for tests of what is sent, and not
    of when. Tests of the times themselves have a clock in their hand (tests/security/test_timing.py)."""
    from pharoah.sidecar import exchange_client, guest_probes, run_reporter, verdict_client

    waits = {
        verdict_client: ("JOIN_SECONDS",),
        exchange_client: ("DECIDE_SECONDS",),
        guest_probes: ("FIRST_WATCH_SECONDS", "FIRST_PAUSE_SECONDS", "MAX_PAUSE_SECONDS"),
        run_reporter: (
            "REPORT_SECONDS",
            "REPORT_OFFSET_SECONDS",
            "MAX_DELAY_SECONDS",
            "FIRST_PAUSE_SECONDS",
            "MAX_PAUSE_SECONDS",
        ),
    }
    for module, names in waits.items():
        for name in names:
            monkeypatch.setattr(module, name, FRACTION * getattr(module, name))
