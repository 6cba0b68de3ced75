"""Work in a forked process that ends with it: whatever a cell does, the process that forked it stays as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from pharoah_protocol.parent_process import end_with_parent


class ForkedAnswer(NamedTuple):
    """What a forked process left."""

    text: str
    """What its work returned; empty when it ended before."""
    status: int | None
    """Its exit status; None when it was killed because it took too long."""


def in_child(work: Callable[[], str], limit_seconds: float) -> ForkedAnswer:
    """Do `work` in a forked child, and end everything that it has started in its session."""
    read_end, write_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            end_with_parent(parent)
            os.setsid()
            os.close(read_end)
            devnull = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1):
                os.dup2(devnull, descriptor)
            content = work().encode()
            while content:
                content = content[os.write(write_end, content) :]
        except BaseException as fault:  # noqa: BLE001 - a child must end here
            print(f"cell: {type(fault).__name__}: {fault}", file=sys.stderr)  # noqa: T201
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    content, deadline, late = b"", time.monotonic() + limit_seconds, False
    while True:
        if not select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))[0]:
            late = True
            break
        chunk = os.read(read_end, 1 << 16)
        if not chunk:
            break
        content += chunk
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.close(read_end)
    _, status = os.waitpid(pid, 0)
    return ForkedAnswer(text=content.decode(), status=None if late else os.waitstatus_to_exitcode(status))
