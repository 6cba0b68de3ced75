"""A process that ends when the process that started it ends, however that happens (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""`prctl` option (linux/prctl.h): the signal this process gets when its parent ends."""
_PR_SET_CHILD_SUBREAPER = 36
"""`prctl` option (linux/prctl.h): orphaned descendants become children of this process."""


def end_with_parent(parent_pid: int | None = None) -> None:
    """Let the kernel kill this process when its parent ends, also when the parent is killed.

    `parent_pid` closes the gap between the start of this process and this call: a process whose parent is already
    another one ends at once. The setting survives `exec` and is not inherited by forked children. Does nothing on
    systems other than Linux.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that it can find and end them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
