"""Forbids writing to files, for this thread and everything that it starts, where there is no sandbox.

This uses Landlock (Linux 5.13). It needs no privilege, cannot be undone, and also holds for code in C.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PR_SET_NO_NEW_PRIVS = 38
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))


def forbid_writes() -> None:
    """From here on, only devices can be written to. Raises OSError when this kernel has no Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = _call(libc, _CREATE_RULESET, None, 0, _VERSION)
    write = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    handled = write | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0)
    attributes = struct.pack("=Q", handled)
    rules = _call(libc, _CREATE_RULESET, attributes, len(attributes), 0)
    devices = os.open("/dev", os.O_PATH | os.O_DIRECTORY)
    _call(libc, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", write, devices), 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call(libc, _RESTRICT_SELF, rules, 0)
    os.close(devices)
    os.close(rules)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
