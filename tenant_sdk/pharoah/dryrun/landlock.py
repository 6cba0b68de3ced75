"""Forbids writing to files, reading devices and network connections, for this thread and all that it will start.

This uses Landlock (Linux 5.13). It needs no privilege, cannot be undone, and also holds for code in C. Kernels that
have newer versions of Landlock also keep signals and abstract sockets inside; on others the filter for system calls
(`refused_calls`) does that alone.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pharoah.dryrun.device_folder import DEVICES
from pharoah.dryrun.kernel_calls import refuse_new_privileges, system_call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the same numbers on every architecture."""
_VERSION, _PATH_BENEATH = 1, 1
# Rights, from linux/landlock.h.
_WRITE_FILE, _READ_FILE, _REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_SYM = (
    1 << bit for bit in (1, 2, 4, 5, 7, 8, 12)
)
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _DEVICE_REQUESTS = 1 << 13, 1 << 14, 1 << 15
"""Rights that came with versions 2, 3 and 5: to move files between folders, to truncate them, ioctl(2) on devices."""
_CONNECTIONS, _SCOPES = 0b11, 0b11
"""To bind and connect TCP sockets, since version 4; abstract sockets and signals, since version 6."""
_HARMLESS_DEVICES = ("null", "zero", "full", "random", "urandom")
_SEARCHED_DESCRIPTORS = 200_000
"""How many open files of other processes are searched for pipes, at about 2 us for each."""


def forbid_writes(folder: Path | None = None) -> None:
    """From here on, only harmless devices and the folder can be written to, and no other devices can be read.

    Raises OSError when this kernel has no Landlock.
    """
    version = system_call(_CREATE_RULESET, None, 0, _VERSION)
    truncate = _TRUNCATE if version >= 3 else 0
    handled = _READ_FILE | _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0) | truncate
    handled |= _DEVICE_REQUESTS if version >= 5 else 0
    attributes = struct.pack("=Q", handled)
    attributes += struct.pack("=Q", _CONNECTIONS) if version >= 4 else b""
    attributes += struct.pack("=Q", _SCOPES) if version >= 6 else b""
    rules = system_call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        _allow_reading(rules, Path("/"), {DEVICES, *_open_pipes()})
        _allow(rules, DEVICES / "shm", _READ_FILE)
        for name in _HARMLESS_DEVICES:
            _allow(rules, DEVICES / name, _READ_FILE | _WRITE_FILE | truncate)
        if folder:
            own = _READ_FILE | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM
            _allow(rules, folder, own | truncate | (_REFER if version >= 2 else 0))
        refuse_new_privileges()
        system_call(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow_reading(rules: int, folder: Path, avoided: set[Path]) -> None:
    """All files in a folder but those to be avoided: who reads a terminal or a pipe takes input from somebody else.

    A symbolic link needs no right, and a right for where it leads could hold for something to be avoided.
    """
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for path in entries:
        if path.is_symlink() or path in avoided:
            continue
        if any(place.is_relative_to(path) for place in avoided):
            _allow_reading(rules, path, avoided)
        else:
            _allow(rules, path, _READ_FILE)


def _open_pipes() -> set[Path]:
    """Pipes with a name that processes of this user have open; of root, those of all users."""
    found = set()
    for link in islice(_open_files(), _SEARCHED_DESCRIPTORS):
        try:
            path = os.readlink(link)  # noqa: PTH115 - as cheap as possible
            if path.startswith("/") and Path(path).is_fifo():
                found.add(Path(path))
        except OSError:
            pass  # closed meanwhile
    return found


def _open_files() -> Iterator[str]:
    for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - names are what is wanted
        folder = f"/proc/{process}/fd"
        try:
            yield from [f"{folder}/{name}" for name in os.listdir(folder)]  # noqa: PTH208
        except OSError:
            pass  # it has ended, or belongs to somebody else


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot be opened needs no right
    try:
        kind = os.fstat(place).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
            system_call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
