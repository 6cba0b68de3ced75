"""Mounts of a sandbox: bound folders and files, layers, and empty file systems."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

from pharoah.dryrun.system_calls import SystemCall

_MNT_DETACH = 2


class IsolationError(OSError):
    """This machine does not allow a sandbox. The message names the step that was refused."""


class MountFlag(IntFlag):
    """Flags of mount(2) (linux/mount.h)."""

    READ_ONLY = 1
    NO_SUID = 2
    NO_DEVICES = 4
    NO_EXECUTION = 8
    REMOUNT = 32
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18


DATA = MountFlag.NO_SUID | MountFlag.NO_DEVICES
"""What holds for every file system of a sandbox."""


def mount(source: Path | str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises IsolationError that names the place."""
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options))
    _check(_libc().mount(*arguments), f"mounting {kind or source} on {target}")


def bind_read_only(source: Path, target: Path, beneath: Iterable[Path] = (), flags: MountFlag = DATA) -> None:
    """Show a file or folder read-only, with what is mounted on the paths `beneath` it. Raises IsolationError.

    Nothing stays bound when one of the mounts cannot be made read-only.
    """
    mount(source, target, flags=MountFlag.BIND | MountFlag.RECURSIVE)
    try:
        for point in (target, *(target / path.relative_to(source) for path in beneath)):
            if os.path.lexists(point):  # another mount may hide it
                _protect(point, flags)
    except OSError as error:
        unmount(target)
        raise IsolationError(error.errno or 0, f"showing {source} read-only: {error.strerror}") from None


def _protect(point: Path, flags: MountFlag) -> None:
    # Flags that a mount has already may not be dropped in a user namespace.
    kept = os.statvfs(point).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    mount("none", point, flags=MountFlag.BIND | MountFlag.REMOUNT | MountFlag.READ_ONLY | flags | kept)


def unmount(point: Path) -> None:
    """Take a mount, and all in it, out of sight. Raises IsolationError."""
    _check(_libc().umount2(os.fsencode(point), _MNT_DETACH), f"unmounting {point}")


def change_root(root: Path) -> None:
    """Make a mount the root, and take the old root with all of its mounts out of reach. Raises OSError."""
    os.chdir(root)
    # With the same folder for both, the old root is mounted on the new one: pivot_root(2) describes it.
    _check(_libc().syscall(ctypes.c_long(SystemCall.PIVOT_ROOT.number_here()), b".", b"."), f"pivot_root to {root}")
    unmount(Path())
    os.chdir("/")


def mounts() -> dict[Path, str]:
    """Mount point to the kind of file system; of several mounts on one point the last, which hides the others."""
    found: dict[Path, str] = {}
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        point = before.split(b" ")[4].decode("unicode_escape").encode("latin-1")  # \\040 is a blank
        found[Path(os.fsdecode(point))] = after.split(b" ")[0].decode()
    return found


def escape(path: Path) -> str:
    """A path as an option of an overlay."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(status: int, what: str) -> None:
    if status != 0:
        error = ctypes.get_errno()
        raise IsolationError(error, f"{what}: {os.strerror(error)}")
