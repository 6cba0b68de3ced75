"""One time for all processes of a job that wait at their end for its sidecar.

A sidecar that does not answer, because somebody has stopped it, would otherwise cost each process of the job its whole
time, one after the other. The first that waits leaves a mark in the folder of the socket; a later one waits for what is
left of the first one's time. The mark goes with the answer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pharoah_system.files import create_exclusively, write_atomically

_MARK = "waited"
_IN_VAIN = "0"
"""In the place of the process that waits: it has had no answer."""


@contextlib.contextmanager
def wait_for_end(socket: str, seconds: float) -> Iterator[float]:
    """Inside, wait so many seconds at most for an answer of the sidecar behind a socket. OSError is passed on: the
    sidecar has not answered."""
    mark = Path(socket).parent / _MARK
    ours = _is_ours(mark)
    left = seconds if ours else _compute_remaining(mark, seconds)
    try:
        yield left
    except OSError:
        if ours:
            with contextlib.suppress(OSError):
                write_atomically(mark, f"{_IN_VAIN} {time.monotonic()}")
        raise
    else:
        if ours:
            with contextlib.suppress(OSError):
                mark.unlink()


def _is_ours(mark: Path) -> bool:
    """Whether this process is the first that waits. One that was killed as it waited does not count."""
    with contextlib.suppress(OSError, ValueError):
        process, _ = mark.read_text().split()
        if process != _IN_VAIN and not os.path.exists(f"/proc/{process}"):  # noqa: PTH110 - it never raises
            mark.unlink()
    try:
        create_exclusively(mark, f"{os.getpid()} {time.monotonic()}")
    except OSError:
        return not mark.exists()  # the folder is gone, or full: every process has its own time then
    return True


def _compute_remaining(mark: Path, seconds: float) -> float:
    """What is left of the time of the process that has left the mark."""
    try:
        process, began_at = mark.read_text().split()
        # The monotonic clock is one for all processes of a machine.
        return 0.0 if process == _IN_VAIN else max(0.0, float(began_at) + seconds - time.monotonic())
    except (OSError, ValueError):
        return seconds  # it is just being written, or its answer has come
