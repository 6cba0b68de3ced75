"""Commands whose output nobody reads to its end, such as `pharoah-agent signals | head`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def end_when_output_is_closed() -> Iterator[None]:
    """End what is inside without an error when the reader of standard output has gone.

    Raises BrokenPipeError for other pipes and sockets, and OSError when the output cannot be written.
    """
    try:
        yield
        if sys.stdout is not None:  # it may be closed from the start on
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_closed():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more


def _is_closed() -> bool:
    """Whether standard output is a pipe or a socket whose other end is closed (poll(2))."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are stated without being asked for
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
