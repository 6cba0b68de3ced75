"""Whose process serves a port of this machine: any user can listen on one above 1023 while its service is away.

The kernel lists all connections with the user of each end (`/proc/net/tcp`, proc(5)). The far end of a connection of
ours belongs to who has accepted it, so what is seen is the connection that is used, and not who listens a moment later.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pharoah_system.trusted_paths import user_name

_TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_ESTABLISHED, _CLOSED_BY_OTHER_END = b"01", b"08"
"""States of a connection whose far end can still be used (include/net/tcp_states.h)."""
_LOCAL, _REMOTE, _STATE, _USER, _INODE = 1, 2, 3, 7, 9
"""Columns of the tables."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.05
_MAPPED = bytes(10) + b"\xff\xff"
"""An address of version 4 in a socket of version 6 begins so (RFC 4291, section 2.5.5.2)."""


class UntrustedServiceError(ValueError):
    """A port that somebody serves whom nobody here trusts, or of whom this machine knows nothing."""


class _FarEnd(NamedTuple):
    user: int
    is_accepted: bool
    """A connection that waits to be accepted belongs to nobody yet: its user is shown as root."""


def check_service(connected: socket.socket, users: frozenset[int], limit_seconds: float) -> None:
    """Wait until somebody has accepted a connection to a port of this machine, and see whose process it is.

    To be called before anything is sent. Raises UntrustedServiceError unless it is one of `users`, also when the far
    end is not in this network namespace; TimeoutError when nobody accepts in time, OSError.
    """
    until, pause = time.monotonic() + limit_seconds, _FIRST_PAUSE_SECONDS
    shown = "{} port {}".format(*connected.getpeername()[:2])
    while (found := _far_end(connected, until)) is not None and not found.is_accepted:
        if time.monotonic() + pause > until:
            raise TimeoutError
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    if found is None:
        raise UntrustedServiceError(
            f"{shown} is served from another network namespace, or not any more, so that nobody knows by whom"
        )
    if found.user not in users:
        raise UntrustedServiceError(
            f"{shown} is served by {user_name(found.user)}, who is not trusted here; if that is right, name this user "
            "in PHAROAH_SERVICE_USERS (--service-users)"
        )


def _far_end(connected: socket.socket, until: float) -> _FarEnd | None:
    """What the kernel knows of the other end; None where it has none. Raises TimeoutError, OSError."""
    here, there = connected.getsockname(), connected.getpeername()
    wanted = {(far, near) for far, near in zip(_write(there), _write(here), strict=True)}
    for line in _lines(until):
        fields = line.split(maxsplit=_INODE + 1)
        if len(fields) <= _INODE or (fields[_LOCAL], fields[_REMOTE]) not in wanted:
            continue
        if fields[_STATE] in (_ESTABLISHED, _CLOSED_BY_OTHER_END):
            return _FarEnd(int(fields[_USER]), int(fields[_INODE]) != 0)
    return None


def _lines(until: float) -> Iterator[bytes]:
    """Any user can make these tables long, so that reading them has a limit, too."""
    for table in _TABLES:
        if not table.exists():  # a kernel without version 6
            continue
        with table.open("rb") as file:
            for line in file:
                if time.monotonic() > until:
                    raise TimeoutError
                yield line


def _write(address: tuple[str, int]) -> tuple[bytes, ...]:
    """How the tables may write an address and a port: words of four bytes in the order of this machine."""
    host, port = address[0].partition("%")[0], address[1]
    if ":" in host:
        forms = [socket.inet_pton(socket.AF_INET6, host)]
    else:
        short = socket.inet_pton(socket.AF_INET, host)
        forms = [short, _MAPPED + short]
    return tuple(b"%s:%04X" % (_words(form), port) for form in forms)


def _words(packed: bytes) -> bytes:
    return b"".join(b"%08X" % word for word in struct.unpack(f"={len(packed) // 4}I", packed))
