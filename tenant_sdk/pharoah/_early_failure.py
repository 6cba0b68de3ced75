"""The report of a process that fails before it was a rank: before the first optimizer step, without `register`.

The command that has started the job reports with which code it ends. What such a process adds is the exception, by
which the rules find out who caused the failure.
"""

from __future__ import annotations

import contextlib

from pharoah._process_end import Failure
from pharoah._sidecar_link import SidecarLink
from pharoah._waited_end import wait_for_end
from pharoah_protocol.rank_messages import End, Ended
from pharoah_protocol.vocabulary import EndState

REPORT_SECONDS = 1.0
"""How long connecting and the answer may take, each: together within the 2 s that an exit may be delayed."""
_OF_LAUNCHERS = ("ChildFailedError", "SignalException", "CalledProcessError")
"""What `torchrun` and `accelerate launch` end with because a rank has failed or a signal has come: no error of their
own (torch/distributed/elastic/multiprocessing, accelerate/commands/launch.py)."""


def report_early_failure(path: str, failure: Failure) -> None:
    """Report to the sidecar why this process fails. Raises OSError and ValueError where it does not answer."""
    if not failure.error or failure.error.partition(":")[0] in _OF_LAUNCHERS:
        return
    with contextlib.closing(SidecarLink(path, REPORT_SECONDS)) as link:
        # Not the last one: others of the job may go on, and `pharoah run` waits for all of them.
        end = End(EndState.FAILED, last=False, status=failure.status, error=failure.error, early=True)
        with wait_for_end(path, REPORT_SECONDS) as seconds:
            link.ask(end, Ended, seconds)
