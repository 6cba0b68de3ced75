"""Answers the sidecar when the job seems to hang: which collectives this process has called last.

A training process that waits in a collective can say nothing itself; this thread sleeps until it is asked.
"""

from __future__ import annotations

import os
import threading

from pharoah._guard import Guard
from pharoah._rank_identity import is_one_of_several, rank
from pharoah._sidecar_link import DRY_RUN, SIDECAR, SidecarLink
from pharoah.capture import hooks

_standing = False


def start_responder(path: str) -> None:
    """Start, once, in the ranks of a distributed job."""
    global _standing
    with Guard("stand by"):
        if _standing or hooks.inert() or os.environ.get(DRY_RUN) or not is_one_of_several():
            return
        _standing = True
        link = SidecarLink(path, 2.0)
        link.tell("standby", rank=rank())
        hooks.on_fork(link.forget)
        threading.Thread(target=_answer, args=(link,), name="pharoah-standby", daemon=True).start()


def start_responder_from_hook() -> None:
    """For `pharoah run`: as soon as torch is there, since the first step may be the one that hangs."""
    if path := os.environ.get(SIDECAR):
        start_responder(path)


def _answer(link: SidecarLink) -> None:
    with Guard("stand by"):
        while link.receive(None):
            from pharoah.capture import flight_recorder

            link.tell("flight", rank=rank(), calls=flight_recorder.last_calls())
