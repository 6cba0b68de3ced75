"""Ends a dry run that attempts what must not happen, and names the attempt.

Python raises an event for each such call (PEP 578). In isolation few are refused: those that would end the dry run, or
that ask for something which the sandbox does not have, so that the user reads the reason. Without isolation every side
effect is refused here by name; the kernel refuses it as well (`pharoah.dryrun.sandbox`), also from code in C.
"""

from __future__ import annotations

import _posixsubprocess
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pharoah.dryrun.unix_sockets import list_bound_names


class SideEffect(BaseException):
    """Raised inside the script; a BaseException so that `except Exception` in it does not swallow it."""


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/shm/",
    "/dev/pts/",
    "/dev/ptmx",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd/",
)

_REPLACING = {"os.exec"}
"""Events that replace the program of this process, and with it the dry run."""

_REACHING = {"socket.connect", "socket.sendto", "socket.sendmsg"}
"""Events that may look for a program outside the sandbox behind a socket file."""

_CHANGING_FILES = {
    "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod", "shutil.rmtree", "shutil.move",
    "shutil.copyfile", "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect",
}  # fmt: skip
"""Events with the paths of files or folders that are made, changed or removed."""

_OUTSIDE = {
    "os.system", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn",
    "os.kill", "os.killpg", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
} | _CHANGING_FILES  # fmt: skip
"""Events that have an effect on the machine where there is no isolation."""


_forking = False


@contextmanager
def forking() -> Iterator[None]:
    """While inside, this process may fork: the dry run follows another way of a branch."""
    global _forking
    _forking = True
    try:
        yield
    finally:
        _forking = False


def install_audit_hook(report: Callable[[str], None], *, isolated: bool, folder: str = "") -> None:
    """Refuse side effects in this process from here on. Python cannot remove an audit hook.

    `report` gets a description of the attempt before the exception is raised, because a script may swallow even that.
    Files in `folder` may be changed also without isolation.
    """
    bound: set[object] = set()
    judged = {"open", "socket.bind"} | _REPLACING | _REACHING | (set() if isolated else _OUTSIDE)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Nearly all events are about something else: torch calls `id` all the time, and each call is an event.
        if event not in judged or (event == "os.fork" and _forking):
            return
        what = _inside(event, arguments, bound) if isolated else _outside(event, arguments, folder)
        if what:
            report(what[:200])
            raise SideEffect(what)

    def spawn(*_: object) -> NoReturn:
        report("starts a process")
        raise SideEffect("starts a process")

    if not isolated:
        _posixsubprocess.fork_exec = spawn  # multiprocessing starts processes with it, without an audit event
    sys.addaudithook(hook)


def _inside(event: str, arguments: tuple[Any, ...], bound: set[object]) -> str:
    """What the event asks for that isolation does not have; empty for all else."""
    if event == "open":
        path = _write(arguments)
        return f"writes {path}" if path and _is_device(path) else ""
    if event in _REPLACING:
        return _describe(event, arguments)
    if event == "socket.bind":
        bound.add(arguments[1])
    if event in _REACHING and arguments[0].family == socket.AF_UNIX and arguments[1] not in (None, *bound):
        return "" if _is_bound(arguments[1]) else f"connects to {arguments[1]!r}"
    return ""


def _is_bound(address: Any) -> bool:
    """Whether a Unix socket of this network namespace has an address. In isolation its program belongs to the dry run,
    as the server of `multiprocessing.Manager` does, which is another process than those that connect to it."""
    try:
        name = os.fsencode(address) if isinstance(address, str) else bytes(address)
        wanted = name.replace(b"\0", b"@") if name.startswith(b"\0") else _whole(name)
        return wanted in map(_whole, list_bound_names())
    except (OSError, TypeError, ValueError):
        return False


def _whole(path: bytes) -> bytes:
    """The path from the root. An abstract name stays as the kernel lists it."""
    return path if path.startswith(b"@") else os.path.abspath(path)  # noqa: PTH100 - without a look at links


def _outside(event: str, arguments: tuple[Any, ...], folder: str) -> str:
    """What the event would do to the machine; empty when it is harmless."""
    if event == "open":
        if path := _write(arguments):
            return "" if _is_in(folder, path) or path in _HARMLESS_DEVICES else f"writes {path}"
        return f"reads the pipe {arguments[0]}" if _is_pipe(arguments[0]) else ""
    if event in _CHANGING_FILES and folder and all(_is_in(folder, path) for path in _paths(arguments)):
        return ""
    return _describe(event, arguments)


def _describe(event: str, arguments: tuple[Any, ...]) -> str:
    return f"{event}({arguments[0]!r})" if arguments else event


def _write(arguments: tuple[Any, ...]) -> str:
    path, mode, flags = arguments
    if path == os.devnull or isinstance(path, int):
        return ""
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return os.fsdecode(path) if writes else ""


def _is_device(path: str) -> bool:
    return path.startswith(("/dev/", "/sys/")) and not path.startswith(_HARMLESS_DEVICES)


def _is_pipe(path: Any) -> bool:
    """Whether this is a pipe with a name: whoever reads it takes from another program."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - as cheap as possible: it runs for each import
    except (OSError, ValueError):
        return False


def _paths(arguments: tuple[Any, ...]) -> list[str]:
    """Paths among the arguments of an event. Names in an open folder (`dir_fd`) become paths."""
    names = [os.fsdecode(value) for value in arguments if isinstance(value, str | bytes | os.PathLike)]
    folders = [value for value in arguments if isinstance(value, int) and value >= 0]
    if len(names) == 1 and len(folders) == 1 and not names[0].startswith("/"):
        return [str(Path(f"/proc/self/fd/{folders[0]}").resolve() / names[0])]
    return names


def _is_in(folder: str, path: str) -> bool:
    return bool(folder) and os.path.abspath(path).startswith(folder + os.sep)  # noqa: PTH100 - without a look at links
