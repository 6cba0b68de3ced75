"""Namespaces of this process alone, as root or within a user namespace (namespaces(7), user_namespaces(7))."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
"""linux/sched.h"""
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
"""linux/mount.h"""


def enter(kinds: int) -> None:
    """Move the calling thread, and what it starts, into new namespaces. Raises OSError.

    A user other than root gets a user namespace as well, which needs a process with one thread.
    """
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kinds) == 0:
        return
    _check(libc.unshare(kinds | CLONE_NEWUSER), "unshare")
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{uid} {uid} 1")
    (own / "gid_map").write_text(f"{gid} {gid} 1")


def mount_memory(folder: Path, size_bytes: int) -> None:
    """Mount a file system in memory, of a fixed size, which this thread alone sees. Raises OSError."""
    enter(CLONE_NEWNS)
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    options = f"size={size_bytes},mode=0700".encode()
    _check(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options), "mount")


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
