"""Answers the courier when the job seems to hang: which collectives this process has called last.

A training process that waits in a collective can say nothing itself; this thread sleeps until it is asked.
"""

from __future__ import annotations

import os
import threading

from pharoah._guard import Guard
from pharoah._rank_identity import is_one_of_several, rank
from pharoah._sidecar_link import COURIER, DRY_RUN, Link
from pharoah.capture import hooks

_standing = False


def stand_by(path: str) -> None:
    """Start, once, in the ranks of a distributed job."""
    global _standing
    with Guard("stand by"):
        if _standing or hooks.inert() or os.environ.get(DRY_RUN) or not is_one_of_several():
            return
        _standing = True
        link = Link(path, 2.0)
        link.tell("standby", rank=rank())
        hooks.on_fork(link.forget)
        threading.Thread(target=_answer, args=(link,), name="pharoah-standby", daemon=True).start()


def stand_by_from_hook() -> None:
    """For `pharoah run`: as soon as torch is there, since the first step may be the one that hangs."""
    if path := os.environ.get(COURIER):
        stand_by(path)


def _answer(link: Link) -> None:
    with Guard("stand by"):
        while link.receive(None):
            from pharoah.capture import flight_recorder

            link.tell("flight", rank=rank(), calls=flight_recorder.last_calls())
