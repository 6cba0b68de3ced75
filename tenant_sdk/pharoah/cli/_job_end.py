"""What `pharoah run` does when the job has ended: its waiter becomes this module.

    python -m pharoah.cli._job_end DESCRIPTOR SOCKET SECONDS STATUS ASKED

The descriptor is the connection to the sidecar that listens at SOCKET, and the sidecar a child of this process. STATUS
is the wait status of the job, ASKED when it was first asked to end, in nanoseconds since 1970; 0 for never. This says
how the job has ended, ends the sidecar, and ends as the job has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from pharoah._sidecar_link import SidecarLink
from pharoah._waited_end import wait_for_end
from pharoah.cli._job_process import die_of
from pharoah_protocol.rank_messages import End, Ended
from pharoah_protocol.vocabulary import EndState
from pharoah_system.local_sockets import peer_credentials
from pharoah_system.own_python import own_module

NANOSECONDS = 1e9
KILLED_SECONDS = 1.0
"""A killed process ends within milliseconds."""
_POLL_SECONDS = 0.005


def command_at_end(link: SidecarLink, shutdown_seconds: float) -> list[str]:
    """The command line of this module, but for its last two words. The connection stays open for it."""
    return own_module("pharoah.cli._job_end", str(link.keep_for_program()), link.path, str(shutdown_seconds))


def main() -> None:
    """Say how the job has ended, and end in the same way."""
    descriptor, path, seconds, status, asked = sys.argv[1:]
    code = os.waitstatus_to_exitcode(int(status))
    with contextlib.suppress(Exception):  # nothing that fails now changes how the job has ended
        connected = socket.socket(fileno=int(descriptor))
        sidecar = peer_credentials(connected).process
        _end_sidecar(sidecar, SidecarLink.from_kept(connected, path), float(seconds), code, int(asked))
    os._exit(code if code >= 0 else die_of(-code))


def _end_sidecar(sidecar: int, link: SidecarLink, seconds: float, code: int, asked: int) -> None:
    """Report to a sidecar how the job has ended, and wait for it as long as it may take; then it is killed."""
    began_at = time.monotonic()
    state = EndState.FAILED if code else EndState.OK
    end = End(state, last=True, status=code, asked_at=asked / NANOSECONDS if asked else None)
    try:
        with contextlib.suppress(OSError, ValueError), wait_for_end(link.path, seconds) as left:
            seconds = left
            link.ask(end, Ended, left)
        link.close()
        if not _has_ended(sidecar, began_at + seconds):
            os.kill(sidecar, signal.SIGKILL)  # our child, so the number is still its own
            _has_ended(sidecar, time.monotonic() + KILLED_SECONDS)
    finally:
        shutil.rmtree(Path(link.path).parent, ignore_errors=True)


def _has_ended(child: int, deadline: float) -> bool:
    while True:
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
