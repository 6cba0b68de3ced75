"""Another user of the machine: processes of the user `nobody`, which only root can start."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
"""The user without rights on Linux systems, and the overflow user of user namespaces (user_namespaces(7))."""
READY_SECONDS = 10.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")

_CONTEXT = multiprocessing.get_context("fork")
"""Forked, because another user may not be allowed to execute this Python."""


def attempt(work: Callable[[], object]) -> str:
    """What comes of a work that another user does: `done`, or the name of the exception."""
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_attempted, args=(work, theirs))
    process.start()
    process.join()
    return str(ours.recv())


@contextmanager
def squatter(bind: Callable[[], socket.socket]) -> Iterator[list[bytes]]:
    """Another user listens on the socket that `bind` gives; all that it has received is in the list at the end."""
    received: list[bytes] = []
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_listen, args=(bind, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(READY_SECONDS) and ours.recv() == b"listening"
        yield received
    finally:
        process.terminate()
        process.join()
        while ours.poll():
            received.append(ours.recv())


def bound(path: Path) -> socket.socket:
    """A Unix socket at a path."""
    one = socket.socket(socket.AF_UNIX)
    one.bind(str(path))
    path.chmod(0o777)
    return one


def become_nobody() -> None:
    """Give up all rights of root, for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _attempted(work: Callable[[], object], answer: Connection) -> None:
    become_nobody()
    try:
        work()
        answer.send("done")
    except Exception as error:
        answer.send(type(error).__name__)


def _listen(bind: Callable[[], socket.socket], heard: Connection) -> None:
    with bind() as server:
        if os.geteuid() == 0:
            become_nobody()
        server.listen()
        heard.send(b"listening")
        while True:
            accepted, _ = server.accept()
            _read(accepted, heard)


def _read(accepted: Any, heard: Connection) -> None:
    with accepted:
        accepted.settimeout(READY_SECONDS)
        try:
            while content := accepted.recv(4096):
                heard.send(content)
        except OSError:
            return
