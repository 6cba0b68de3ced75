"""Why a process below `pharoah run` fails that never steps: it has no session, which would report its end.

A script may fail before its first step for reasons that its exit code does not show: a missing file, a GPU with an
error, too little memory for the first batch. Nothing is connected before such a failure. Launchers report nothing:
their error is only that one of their ranks has failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing

from pharoah._errors import UnknownReason
from pharoah._guard import Guard
from pharoah._process_end import Failure, watch_process_end
from pharoah._settings import Settings
from pharoah._sidecar_link import DRY_RUN, SIDECAR, SidecarLink
from pharoah.capture import hooks
from pharoah_protocol.rank_messages import End, Ended
from pharoah_protocol.vocabulary import EndState


def report_early_failure(joined: Callable[[], bool]) -> None:
    """Report the exception that ends this process, unless it has `joined` the sidecar by then."""
    failures: list[Failure] = []

    def at_exit() -> None:
        with Guard("exit"):
            if failures and not joined() and not hooks.inert() and not _is_launcher():
                _report(failures[0])

    if not os.environ.get(DRY_RUN):
        watch_process_end(failures.append, at_exit)


def _report(failure: Failure) -> None:
    if not failure.error:
        return  # whoever waits for this process sees its exit code
    settings = Settings.load()
    try:
        with closing(SidecarLink(os.environ[SIDECAR], settings.timeout_seconds)) as link:
            end = End(EndState.FAILED, last=False, status=failure.status, error=failure.error)
            link.ask(end, Ended, settings.shutdown_timeout_seconds)
    except (OSError, ValueError):
        pass  # the sidecar does not answer


def _is_launcher() -> bool:
    from pharoah.launchers import launch_of  # here: processes that do not fail never need it

    try:
        return bool(launch_of(sys.orig_argv).program.launcher)
    except UnknownReason:
        return False
