"""What the evaluation of privacy measures of one query: an attacker that learns from transcripts, and a revocation."""

from __future__ import annotations

import asyncio
from math import inf

import numpy as np
import pytest

from evaluation.privacy.query_cost import seconds_until_changed
from evaluation.privacy.query_leakage import learned_guesses

JOBS, SHOWN = 2000, 3
"""Transcripts, and the rank of the job that shows in its bytes."""


def transcripts(asked: np.ndarray, shown: int | None) -> list[list[bytes]]:
    """Random elements; the first ones of the job with the rank `shown` have all their bits."""
    chance = np.random.default_rng(5)
    return [
        [b"\xff" * 32 if rank == shown and number < 10 else chance.bytes(32) for number in range(64)] for rank in asked
    ]


def drawn() -> np.ndarray:
    return np.random.default_rng(6).choice(5, JOBS, p=[0.4, 0.3, 0.1, 0.1, 0.1])


def test_a_job_that_shows_is_guessed_in_both_halves() -> None:
    """An attacker that guesses in one half only has half of its gain."""
    asked = drawn()
    guesses = np.array(learned_guesses(transcripts(asked, SHOWN), asked.tolist()))
    for half in (slice(0, JOBS // 2), slice(JOBS // 2, JOBS)):
        found = guesses[half] == SHOWN
        assert found.sum() >= 10
        assert (asked[half][found] == SHOWN).mean() > 0.9


def test_transcripts_that_show_nothing_give_no_gain() -> None:
    asked = drawn()
    guesses = np.array(learned_guesses(transcripts(asked, None), asked.tolist()))
    assert (guesses == asked).mean() <= (asked == 0).mean() + 0.01


@pytest.mark.parametrize("acts", ["never", "without effect"])
def test_a_verdict_that_stays_is_not_waited_for_without_end(acts: str) -> None:
    async def verdict() -> str:
        return "incompatible"

    async def revoke() -> None:
        if acts == "never":
            await asyncio.Event().wait()

    assert asyncio.run(seconds_until_changed(verdict, revoke, most=0.01)) == inf


def test_a_verdict_that_changes_is_seen() -> None:
    verdicts = iter(["incompatible", "incompatible", "unknown"])
    revoked = []

    async def verdict() -> str:
        return next(verdicts)

    async def revoke() -> None:
        revoked.append(True)

    seconds = asyncio.run(seconds_until_changed(verdict, revoke, most=60.0))
    assert revoked and 0 < seconds < inf
    assert next(verdicts, None) is None, "it is asked for until it is another one"
