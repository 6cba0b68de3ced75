"""Where a micro-benchmark runs: the folders that it may write, and its partner."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pharoah_system.peer_networks import read_networks

DISK_FOLDER = Path("/var/tmp")
"""Its files survive a restart (Filesystem Hierarchy Standard 3.0, section 5.15), so they are on a disk; /tmp may be in
memory."""
MAX_TOKEN_CHARACTERS = 256


class NotPossible(Exception):
    """The micro-benchmark cannot run here; the message says what is missing and what to do."""


@dataclass(frozen=True)
class Peer:
    """This process among those that run a micro-benchmark together. Raises ValueError that names the field."""

    rank: int
    size: int
    """The number of processes."""
    rendezvous: str
    """Where they meet: `HOST:PORT`, on which rank 0 listens, or the path of a file that all of them reach. Each
    measurement has a rendezvous of its own."""
    token: str = field(default="", repr=False)
    """What all of them know and nobody else does; only who proves to know it is met at a port."""
    networks: tuple[str, ...] | None = None
    """The networks in which this process meets others at a port; None for any, where people have chosen the place."""

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or not 2 <= self.size <= 1024:
            raise ValueError(f"peer.size: {self.size!r} is not a number of processes from 2 to 1024")
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or not 0 <= self.rank < self.size:
            raise ValueError(f"peer.rank: {self.rank!r} is not a number from 0 to {self.size - 1}")
        if not isinstance(self.rendezvous, str) or not (self.rendezvous.startswith("/") or self.has_port):
            raise ValueError(f"peer.rendezvous: {self.rendezvous!r} is neither HOST:PORT nor an absolute path")
        if not isinstance(self.token, str) or not self.token.isascii() or len(self.token) > MAX_TOKEN_CHARACTERS:
            raise ValueError(f"peer.token: expected ASCII of at most {MAX_TOKEN_CHARACTERS} characters")
        if self.networks is not None:
            try:
                read_networks(self.networks)
            except (TypeError, ValueError) as error:
                raise ValueError(f"peer.networks: {error}") from None

    @property
    def has_port(self) -> bool:
        """Whether the processes meet at a port, not in a file."""
        host, _, port = self.rendezvous.rpartition(":")
        return not self.rendezvous.startswith("/") and bool(host) and port.isdecimal() and 0 < int(port) < 65536

    @classmethod
    def from_data(cls, data: Any) -> Peer:
        """The peer of an order. Raises ValueError that names the field."""
        needed = {"rank", "size", "rendezvous"}
        if not isinstance(data, dict) or not needed <= set(data) <= needed | {"token", "networks"}:
            raise ValueError("peer: expected an object with rank, size and rendezvous")
        networks = data.get("networks")
        return cls(**{**data, "networks": tuple(networks) if isinstance(networks, list) else networks})


@dataclass(frozen=True)
class Place:
    """What a kernel finds on its node."""

    scratch_folder: Path | None = None
    """Where files on the local disk are made; by default a folder that is on a disk."""
    remote_folder: Path | None = None
    peer: Peer | None = None

    def local_folder(self) -> Path:
        """The folder for files on the local disk."""
        if self.scratch_folder is not None:
            return self.scratch_folder
        return DISK_FOLDER if DISK_FOLDER.is_dir() else Path(tempfile.gettempdir())

    def require_remote_folder(self) -> Path:
        """Raises NotPossible when the operator has named none."""
        if self.remote_folder is None:
            raise NotPossible("no folder on remote storage is named; start with --remote-folder")
        return self.remote_folder

    def require_peer(self) -> Peer:
        """Raises NotPossible when the order names none."""
        if self.peer is None:
            raise NotPossible("it needs a partner: a second process with the same order and another rank")
        return self.peer
