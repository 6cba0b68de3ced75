"""Capabilities of a process (capabilities(7)), dropped for good."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from pharoah.dryrun.kernel_calls import prctl

_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_VERSION_3 = 0x20080522
"""The layout: two sets of 32 bits each for effective, permitted and inheritable (linux/capability.h)."""
_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID = 0, 1, 3, 4
_ABOUT_FILES = 1 << _CHOWN | 1 << _DAC_OVERRIDE | 1 << _FOWNER | 1 << _FSETID
"""Capabilities with which root reads and writes files of other users. They reach only what can be named by a path."""
_MAX_CAPABILITIES = 64


def about_files() -> int:
    """The capabilities about files that this process has, as bits. Raises OSError."""
    data = ctypes.create_string_buffer(24)
    _call("capget", data)
    effective: int = struct.unpack("=6I", data.raw)[0]
    return effective & _ABOUT_FILES


def keep_only(kept: int) -> None:
    """Drop all capabilities but the `kept` bits, also for programs that are started later. Raises OSError."""
    for number in range(_MAX_CAPABILITIES):
        if not kept >> number & 1:
            try:
                prctl(_PR_CAPBSET_DROP, number)
            except OSError as error:
                # EPERM: without privileges there is nothing to drop, and no new privileges can come.
                if error.errno in (errno.EINVAL, errno.EPERM):
                    break
                raise
    try:
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 4.3 has no ambient set
            raise
    _call("capset", ctypes.create_string_buffer(struct.pack("=6I", kept, kept, 0, 0, 0, 0), 24))


def _call(name: str, data: ctypes.Array[ctypes.c_char]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(struct.pack("=Ii", _VERSION_3, 0), data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
