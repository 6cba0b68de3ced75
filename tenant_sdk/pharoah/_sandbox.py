"""What keeps a dry run from touching the machine: an audit hook, no file growth, no GPU.

Reads pass. Writes, network, signals to others and new processes end the dry run with what was tried; the verdict is
then `unknown` with that reason and the real launch is not affected.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import Any


class SideEffect(BaseException):
    """Raised inside the script; a BaseException so that `except Exception` in it does not swallow it."""


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_REFUSED = {
    "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod",
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn",
    "os.kill", "os.killpg", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "shutil.rmtree", "shutil.move", "shutil.copyfile", "tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect",
}  # fmt: skip


def seal(report: Callable[[str], None]) -> None:
    """Refuse side effects in this process from here on; there is no way back.

    `report` is told what was tried before the exception is raised, because a script may swallow even that.
    """
    # What escapes Python's audit events (files opened in C++) cannot grow either.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            what = _written(arguments)
        elif event in _REFUSED:
            what = f"{event}({arguments[0]!r})" if arguments else event
        else:
            return
        if what:
            report(what[:200])
            raise SideEffect(what)

    sys.addaudithook(hook)


def _written(arguments: tuple[Any, ...]) -> str:
    path, mode, flags = arguments
    if path == os.devnull or isinstance(path, int):
        return ""
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return f"writes {path}" if writes else ""
