"""Starting a sidecar: always by exec, never by fork, one per node and job."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO

from pharoah._guard import DEBUG
from pharoah._rank_identity import job_key
from pharoah._settings import Settings

LONGEST_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket on Linux (unix(7)); schedulers like to set a long TMPDIR."""
_NAME_BYTES = len("/pharoah-0123456789abcdef/sidecar.sock")
_LOCK = "lock"
"""File that a process locks while it starts a sidecar in the folder."""


def start_sidecar(path: Path, settings: Settings, run_id: str = "") -> subprocess.Popen[bytes]:
    """Start a sidecar that will listen on `path`. It ends by itself when its last rank has gone."""
    return subprocess.Popen(
        [sys.executable, "-m", "pharoah.sidecar", str(path), json.dumps(asdict(settings)), run_id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get(DEBUG) else subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C for the job must not cut its last report
    )


def wait_for(path: Path, timeout_seconds: float) -> None:
    """Raises TimeoutError when nobody listens in time."""
    deadline = time.monotonic() + timeout_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no sidecar within {timeout_seconds:g} s")
        time.sleep(0.01)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        try:
            trial.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def socket_base() -> Path:
    """The folder for our folders of sockets: the one for temporary files, or /tmp where its path is too long."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) + _NAME_BYTES <= LONGEST_SOCKET_PATH else "/tmp")


def private_folder() -> Path:
    """A folder for sockets that only this user may enter."""
    return Path(tempfile.mkdtemp(prefix="pharoah-", dir=socket_base()))


def _lock(folder: Path) -> IO[str]:
    """The folder, made if need be, and its lock, held until the file is closed. Raises PermissionError."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        # A sidecar that ends removes folder and lock; then the lock that was waited for locks nothing any more.
        with contextlib.suppress(FileNotFoundError):
            lock = (folder / _LOCK).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), (folder / _LOCK).stat()):
                    return lock
            lock.close()


def remove_folder(path: Path) -> None:
    """At the end of the sidecar of a path: remove the folder that `sidecar_of_this_node` made for it.

    A folder in which another process starts a sidecar stays, and so does one without a lock: its owner removes it.
    """
    with contextlib.suppress(OSError), (path.parent / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists():
            (path.parent / _LOCK).unlink()
            path.parent.rmdir()


def sidecar_of_this_node(settings: Settings) -> str:
    """Path of the sidecar that serves this job here; started by whichever local rank comes first."""
    folder = Path(socket_base(), f"pharoah-{hashlib.sha256(job_key().encode()).hexdigest()[:16]}")
    path = folder / "sidecar.sock"
    with _lock(folder):
        if not _listens(path):
            path.unlink(missing_ok=True)  # of a sidecar that was killed
            start_sidecar(path, settings)
            wait_for(path, 10.0)
    return str(path)
