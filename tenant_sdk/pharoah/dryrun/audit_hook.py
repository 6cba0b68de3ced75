"""What keeps a dry run from touching the machine.

First choice is a fence (`fence.py`): the script may write, listen and start processes, and nothing of it is real.
Where the machine allows none, side effects are refused instead: Landlock keeps every file as it is, and an audit hook
ends the dry run with what was tried; the verdict is `unknown` with that reason, the real launch is not affected.
"""

from __future__ import annotations

import _posixsubprocess
import ctypes
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn


class SideEffect(BaseException):
    """Raised inside the script; a BaseException so that `except Exception` in it does not swallow it."""


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/shm/",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd/",
)

_PR_SET_PDEATHSIG = 1
_REPLACING = {"os.exec"}
"""Leaves nothing of the dry run in the process."""

_REACHING = {"socket.connect", "socket.sendto", "socket.sendmsg"}

_OUTSIDE = {
    "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod",
    "os.system", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn",
    "os.kill", "os.killpg", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "shutil.rmtree", "shutil.move", "shutil.copyfile", "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect",
}  # fmt: skip


def fence() -> str:
    """Enter a fence if this machine allows one; returns why not, or nothing. Call it before there are threads.

    Raises OSError when nothing at all keeps a script from the user's files: then there must be no dry run.
    """
    from pharoah.dryrun import isolation as throw_away
    from pharoah.dryrun import landlock

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        throw_away.isolate()
    except Exception as refused:  # noqa: BLE001 - whatever it is, there is no fence
        landlock.forbid_writes()
        return str(refused)
    return ""


def die_with_parent() -> None:
    """End when whoever asked for the dry run is gone: it may never end by itself."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def install_audit_hook(report: Callable[[str], None], *, fenced: bool) -> None:
    """Refuse in this process, from here on, what would be felt outside; there is no way back.

    `report` is told what was tried before the exception is raised, because a script may swallow even that.
    """
    bound: set[object] = set()
    judged = {"open", "socket.bind"} | _REPLACING | _REACHING | (set() if fenced else _OUTSIDE)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Nearly all events are about something else: torch asks for ids all the time, and each ask is one.
        if event in judged and (what := _judged(event, arguments, fenced, bound)):
            report(what[:200])
            raise SideEffect(what)

    def spawn(*_: object) -> NoReturn:
        report("starts a process")
        raise SideEffect("starts a process")

    if not fenced:
        _posixsubprocess.fork_exec = spawn  # how multiprocessing starts a process; no audit event tells of it
    sys.addaudithook(hook)


def _judged(event: str, arguments: tuple[Any, ...], fenced: bool, bound: set[object]) -> str:
    if event == "open":
        path = _written(arguments)
        return f"writes {path}" if path and (not fenced or _is_device(path)) else ""
    if event in _REPLACING or (not fenced and event in _OUTSIDE):
        return f"{event}({arguments[0]!r})" if arguments else event
    if event == "socket.bind":
        bound.add(arguments[1])
    if event in _REACHING and arguments[0].family == socket.AF_UNIX and arguments[1] not in (None, *bound):
        # A socket file is shown as it is, and whoever listens behind it is not part of the copy.
        return f"connects to {arguments[1]!r}"
    return ""


def _written(arguments: tuple[Any, ...]) -> str:
    path, mode, flags = arguments
    if path == os.devnull or isinstance(path, int):
        return ""
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return os.fsdecode(path) if writes else ""


def _is_device(path: str) -> bool:
    return path.startswith(("/dev/", "/sys/")) and not path.startswith(_HARMLESS_DEVICES)
