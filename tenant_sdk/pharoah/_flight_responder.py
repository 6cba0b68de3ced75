"""Answers the sidecar when the job seems to hang: which collectives this process called last.

A training process that waits in a collective cannot send anything itself; this thread sleeps until it is asked.
"""

from __future__ import annotations

import os
import threading

from pharoah._guard import Guard
from pharoah._rank_identity import is_one_of_several, rank
from pharoah._sidecar_link import DRY_RUN, SIDECAR, SidecarLink
from pharoah.capture import hooks
from pharoah_protocol.rank_messages import (
    CollectiveCall,
    CollectiveStart,
    FlightRecord,
    FlightRecordRequest,
    RegisterResponder,
)

_started = False


def start_responder(path: str) -> None:
    """Start, once, in the ranks of a distributed job."""
    global _started
    with Guard("flight responder"):
        if _started or hooks.inert() or hooks.in_fork_server() or os.environ.get(DRY_RUN) or not is_one_of_several():
            return
        _started = True
        link = SidecarLink(path, 2.0)
        link.send(RegisterResponder(rank()))
        hooks.on_fork(link.forget)
        threading.Thread(target=_answer, args=(link,), name="pharoah-responder", daemon=True).start()


def start_responder_from_hook() -> None:
    """For `pharoah run`: as soon as torch is loaded, since the first step may be the one that hangs."""
    if path := os.environ.get(SIDECAR):
        start_responder(path)


def _answer(link: SidecarLink) -> None:
    with Guard("flight responder"):
        while request := link.wait_for_message():
            if isinstance(request, FlightRecordRequest):
                # Late, because it is needed only when a job seems to hang.
                from pharoah.capture import flight_recorder

                recorded = flight_recorder.read_recorded_calls(places=not request.starts_only)
                last = () if request.starts_only else flight_recorder.last_calls(recorded)
                calls = tuple(CollectiveCall(**call) for call in last)
                starts = tuple(CollectiveStart(**start) for start in flight_recorder.last_starts(recorded))
                link.send(FlightRecord(rank(), calls, starts))
