"""Starting a sidecar: always by exec, never by fork, one per node and job."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from pharoah._guard import DEBUG
from pharoah._rank_identity import job_key
from pharoah._settings import Settings

SOCKET, LOCK = "sidecar.sock", "lock"
"""Files in the folder that the ranks of a job share."""


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


def private_folder() -> Path:
    """A folder for sockets that only this user may enter."""
    return Path(tempfile.mkdtemp(prefix="pharoah-"))


def sidecar_of_this_node(settings: Settings) -> str:
    """Path of the sidecar that serves this job here; started by whichever local rank comes first."""
    folder = Path(tempfile.gettempdir(), f"pharoah-{hashlib.sha256(job_key().encode()).hexdigest()[:16]}")
    path = folder / SOCKET
    with _only_starter(folder):
        if not _listens(path):
            path.unlink(missing_ok=True)  # of a sidecar that was killed
            start_sidecar(path, settings)
            wait_for(path, 10.0)
    return str(path)


def remove_folder(folder: Path) -> None:
    """Called by a sidecar that has ended: remove its folder, unless another process starts a sidecar there."""
    lock = folder / LOCK
    try:
        with lock.open("r") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _listens(folder / SOCKET):
                lock.unlink()
                folder.rmdir()
    except OSError:  # there is no lock, so its owner removes the folder; or it is used again
        pass


@contextmanager
def _only_starter(folder: Path) -> Iterator[None]:
    """Held by one process per folder. The folder may be removed while this process waits: then it is made again."""
    while (lock := _locked(folder)) is None:
        pass
    with lock:
        yield


def _locked(folder: Path) -> TextIO | None:
    """The lock of a folder, held; None when the folder was removed meanwhile."""
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = None
    try:
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else")
        lock = (folder / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK).stat()):
            return lock
    except FileNotFoundError:
        pass
    if lock is not None:
        lock.close()
    return None
