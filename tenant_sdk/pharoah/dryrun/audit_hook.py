"""What keeps a dry run from changing the machine.

The first choice is a sandbox (`isolation`): the script may write, listen and start processes, and nothing of it stays.
Where the machine does not allow a sandbox, side effects are refused: Landlock forbids writing to files, and an audit
hook ends the dry run and reports the attempt. The verdict is then `unknown` with that reason, and the real launch is
not affected.
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

from pharoah.dryrun import isolation, landlock


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
"""Events that replace the program of this process, and with it the dry run."""

_REACHING = {"socket.connect", "socket.sendto", "socket.sendmsg"}
"""Events that may reach a program outside the sandbox through a socket file."""

_OUTSIDE = {
    "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod",
    "os.system", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn",
    "os.kill", "os.killpg", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "shutil.rmtree", "shutil.move", "shutil.copyfile", "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect",
}  # fmt: skip
"""Events that have an effect on the machine where there is no sandbox."""


def enter_sandbox() -> str:
    """Enter a sandbox if this machine allows one. Returns the reason why it does not, or nothing.

    Call it before there are threads. Raises OSError when nothing keeps a script from the user's files: then there must
    be no dry run.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        isolation.isolate()
    except Exception as refused:  # noqa: BLE001 - whatever the fault is, there is no sandbox
        landlock.forbid_writes()
        return str(refused)
    return ""


def die_with_parent() -> None:
    """End this process when its parent ends: the script may never end by itself."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def install_audit_hook(report: Callable[[str], None], *, sandboxed: bool) -> None:
    """Refuse, in this process from here on, what would have an effect outside. Python cannot remove an audit hook.

    `report` gets a description of the attempt before the exception is raised, because a script may swallow even that.
    """
    bound: set[object] = set()
    judged = {"open", "socket.bind"} | _REPLACING | _REACHING | (set() if sandboxed else _OUTSIDE)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Nearly all events are about something else: torch calls `id` all the time, and each call is an event.
        if event in judged and (what := _side_effect(event, arguments, sandboxed, bound)):
            report(what[:200])
            raise SideEffect(what)

    def spawn(*_: object) -> NoReturn:
        report("starts a process")
        raise SideEffect("starts a process")

    if not sandboxed:
        _posixsubprocess.fork_exec = spawn  # multiprocessing starts processes with it, without an audit event
    sys.addaudithook(hook)


def _side_effect(event: str, arguments: tuple[Any, ...], sandboxed: bool, bound: set[object]) -> str:
    """What the event would do outside; empty when it is harmless."""
    if event == "open":
        path = _written(arguments)
        return f"writes {path}" if path and (not sandboxed or _is_device(path)) else ""
    if event in _REPLACING or (not sandboxed and event in _OUTSIDE):
        return f"{event}({arguments[0]!r})" if arguments else event
    if event == "socket.bind":
        bound.add(arguments[1])
    if event in _REACHING and arguments[0].family == socket.AF_UNIX and arguments[1] not in (None, *bound):
        # The sandbox shows socket files as they are, and the program that listens there is outside.
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
