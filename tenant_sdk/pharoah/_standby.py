"""Answers the courier when the job seems to hang: which collectives this process has called last.

A training process that waits in a collective can say nothing itself; this thread sleeps until it is asked.
"""

from __future__ import annotations

import multiprocessing
import os
import threading

from pharoah._guard import Guard
from pharoah._link import COURIER, DRY_RUN, Link
from pharoah.capture import hooks

_standing = False


def stand_by(path: str, rank: int) -> None:
    """Start, once, in the ranks of a distributed job; their workers are no ranks."""
    global _standing
    with Guard("stand by"):
        if _standing or hooks.inert() or multiprocessing.parent_process() is not None:
            return
        if int(os.environ.get("WORLD_SIZE") or 1) < 2 or os.environ.get(DRY_RUN):
            return
        _standing = True
        link = Link(path, 2.0)
        link.tell("standby", rank=rank)
        hooks.on_fork(link.forget)
        threading.Thread(target=_answer, args=(link, rank), name="pharoah-standby", daemon=True).start()


def stand_by_from_hook(rank: int) -> None:
    """For `pharoah run`: as soon as torch is there, since the first step may be the one that hangs."""
    if path := os.environ.get(COURIER):
        stand_by(path, rank)


def _answer(link: Link, rank: int) -> None:
    with Guard("stand by"):
        while link.receive(None):
            from pharoah.capture import flight

            link.tell("flight", rank=rank, calls=flight.last_calls())
