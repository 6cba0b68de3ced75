"""Unix sockets between processes of one machine: where they are, who may serve them, and how one is served safely.

A client checks before it sends anything: only trusted users can change the folder of the socket, one of them owns the
socket, and one of them serves it (SO_PEERCRED, unix(7)).
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import socket
import stat
import struct
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pharoah_system.files import open_lock
from pharoah_system.trusted_paths import (
    UntrustedPathError,
    check_owner,
    check_trusted_folder,
    list_trusted_users,
    user_name,
)

SCHEME = "unix:"
"""Endpoints on this machine begin so (gRPC name resolution): `unix:/path`."""
MAX_PATH_BYTES = 107
"""Bytes of the path of a Unix socket on Linux (unix(7))."""
PROVIDER_SOCKET, AUDITOR_SOCKET = "provider.sock", "auditor.sock"
"""Names of the sockets in the folder of the user who serves."""
SYSTEM_FOLDER = Path("/run/pharoah")
"""Where services that root starts have their sockets (FHS 3.0, /run)."""
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
"""Folder for the sockets of a user (XDG base directory specification); only that user can enter it."""
PROBE_SECONDS = 1.0
"""How long a connection that shows who serves may take. Connecting to a Unix socket waits only for a full queue."""
OWNER_ONLY, OWNER_AND_GROUP, EVERYBODY = 0o600, 0o660, 0o666
"""Modes of a socket: to connect takes the permission to write (unix(7))."""
_CREDENTIALS = struct.Struct("iII")
"""`struct ucred` of unix(7)."""
_SCRATCH, _LOCK = ".new", ".lock"


class PeerCredentials(NamedTuple):
    """The process at the other end of a Unix socket, when it connected or listened."""

    process: int
    user: int
    group: int


def peer_credentials(connected: socket.socket) -> PeerCredentials:
    """Who is at the other end, as the kernel says it. Raises OSError."""
    content = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return PeerCredentials(*_CREDENTIALS.unpack(content))


class LocalSocketError(ValueError):
    """A path at which no socket can be served or reached; the message says why."""


def socket_path(endpoint: str) -> Path:
    """The path in `unix:/path` or `unix:///path`. Raises LocalSocketError."""
    if not endpoint.startswith(SCHEME):
        raise LocalSocketError(f"{endpoint} is not the endpoint of a Unix socket (unix:/path)")
    text = endpoint.removeprefix(SCHEME)
    text = text[2:] if text.startswith("///") else text
    if not text.startswith("/") or text.startswith("//"):
        raise LocalSocketError(f"{endpoint}: the path of a socket must be absolute (unix:/path)")
    return Path(text)


def endpoint_of(path: Path) -> str:
    """A path as gRPC takes it: characters that have a meaning in a URI are escaped."""
    return SCHEME + quote(str(path))


def runtime_folder() -> Path:
    """Where this user's services have their sockets. Raises LocalSocketError where the user has no such folder."""
    if os.geteuid() == 0:
        return SYSTEM_FOLDER
    if own := os.environ.get(RUNTIME_VARIABLE):
        return Path(own, "pharoah")
    raise LocalSocketError(f"{RUNTIME_VARIABLE} is not set: say where the socket is (unix:/path)")


def find_socket(name: str) -> Path:
    """A service's socket in this user's folder, where there is one, else in the one of the system."""
    with contextlib.suppress(LocalSocketError):
        if (own := runtime_folder() / name).exists():
            return own
    return SYSTEM_FOLDER / name


class CheckedSocket:
    """A socket that only trusted users can serve, as a client sees it."""

    def __init__(self, path: Path, service_users: str = "") -> None:
        """`service_users` are trusted besides root and us. Raises UntrustedPathError, OSError."""
        self._users = list_trusted_users(service_users)
        self._probed: tuple[int, int, int] | None = None
        self.path = path
        """Without symbolic links from now on."""
        self.path = self.check()

    def check(self) -> Path:
        """The real path, also when nobody serves it yet. Raises UntrustedPathError, OSError.

        To be called before each use: folders of temporary files are cleaned up, and then anybody may make them again.
        """
        path = check_trusted_folder(self.path.parent, self._users) / self.path.name
        try:
            found = path.lstat()
        except FileNotFoundError:
            return path
        check_owner(path, found, self._users)
        if not stat.S_ISSOCK(found.st_mode):
            raise UntrustedPathError(f"{path} is not a socket")
        if self._probed != (identity := (found.st_dev, found.st_ino, found.st_ctime_ns)):
            self._probe(path)
            self._probed = identity
        return path

    def check_peer(self, connected: socket.socket) -> None:
        """Raises UntrustedPathError unless a trusted user serves the other end."""
        user = peer_credentials(connected).user
        if user not in self._users:
            raise UntrustedPathError(f"{self.path} is served by {user_name(user)}, who is not trusted here")

    def _probe(self, path: Path) -> None:
        """See who serves, by a connection that sends nothing. If nobody does, only trusted users can later."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.settimeout(PROBE_SECONDS)
            try:
                trial.connect(str(path))
            except OSError:
                return
            self.check_peer(trial)


class ServedSocket:
    """A path at which this process alone serves, from its construction to `close`."""

    def __init__(self, path: Path, mode: int = OWNER_ONLY, group: str = "") -> None:
        """Claim the path; its folder is made where it is missing.

        `mode` says who may connect; with a `group`, its members and the owner. Raises UntrustedPathError when others
        can change the folder, LocalSocketError when another process serves there, OSError.
        """
        self._mode, self._group = (OWNER_AND_GROUP if group else mode), _group_id(group)
        if len(os.fsencode(path)) + len(_LOCK) > MAX_PATH_BYTES:
            longest = MAX_PATH_BYTES - len(_LOCK)
            raise LocalSocketError(f"{path}: the path of a socket may have {longest} bytes at most")
        self.path = _make(path.parent) / path.name
        self.scratch = self.path.with_name(self.path.name + _SCRATCH)
        """Where to bind: the socket gets its name when it has its mode."""
        for taken in (self.path, self.scratch):
            if os.path.lexists(taken) and not stat.S_ISSOCK(taken.lstat().st_mode):
                raise LocalSocketError(f"{taken} is there and is not a socket; remove it, or choose another path")
        self._published: os.stat_result | None = None
        self._lock_path = self.path.with_name(self.path.name + _LOCK)
        self._lock: int | None = _hold_lock(self._lock_path, self.path)
        self.scratch.unlink(missing_ok=True)  # of a server that was killed

    def publish(self) -> None:
        """Give the socket that is bound to `scratch` its mode and its name. Raises OSError."""
        if self._group is not None:
            os.chown(self.scratch, -1, self._group)
        self.scratch.chmod(self._mode)
        self._published = self.scratch.lstat()
        self.scratch.rename(self.path)

    def close(self) -> None:
        """Remove the socket and let others serve here. Nothing happens the second time."""
        if self._lock is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._published and os.path.samestat(self.path.lstat(), self._published):
                self.path.unlink()
        for left in (self.scratch, self._lock_path):
            left.unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None


def _make(folder: Path) -> Path:
    """The real path of a folder of ours. Others may enter one that is made here: modes of sockets say who connects."""
    real = check_trusted_folder(folder, list_trusted_users())
    if real.exists():
        return real
    real.parent.mkdir(parents=True, exist_ok=True)
    real.mkdir(mode=0o755)
    real.chmod(0o755)  # whatever the mask of this process is
    return check_trusted_folder(real, list_trusted_users())


def _hold_lock(path: Path, served: Path) -> int:
    """A descriptor that holds the lock. Raises LocalSocketError when another process has it."""
    while True:
        descriptor = open_lock(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A server that ends removes the file; a lock on a file without a name locks nothing.
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise LocalSocketError(f"another process serves {served}") from None
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _group_id(name: str) -> int | None:
    if not name:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise LocalSocketError(f"{name!r} is not a group of this machine") from None
