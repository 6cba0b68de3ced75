"""The high-water mark: what this provider has signed, written down before it is signed.

A provider signs one log: each checkpoint continues the one before it, and there is one head per epoch. Files can be
older than what was signed with them (a restored copy), or exist twice (a copied folder). So the mark lies beside the
signing key, knows which file it is, and nothing is signed that does not continue it. A tenant could otherwise prove a
misbehaviour that nobody intended (ADR 24).
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pharoah_protocol.log.merkle import Frontier
from pharoah_serving.errors import StoreError
from pharoah_serving.keys import is_command
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import own_content

FILE = "high-water.json"
MOVE_SECONDS = 24 * 3600.0
"""How long after `pharoah-provider move` the files may start elsewhere: a move takes less than a day, and what
starts later is a copy."""
NEW_LOG = (
    "start a log under a new key, which tenants must then pin: `pharoah-provider init --new-log` with the --keys and "
    "the --db of `serve`"
)


class Place(NamedTuple):
    """What is true of one file, and not of a copy of it."""

    inode: int
    born_ns: int
    """When the file was made, unix nanoseconds; 0 where the file system does not record it, or the kernel that runs
    does not say it."""

    def may_be(self, other: Place) -> bool:
        """Whether both can be true of one file: another kernel or container may say when it was made, or no longer."""
        return self.inode == other.inode and (self.born_ns == other.born_ns or 0 in (self.born_ns, other.born_ns))


@dataclass(frozen=True)
class Mark:
    """The furthest point that was signed."""

    origin: str
    """Name of the log."""
    size: int = 0
    """Entries of the log."""
    root: str = ""
    """Root hash of these entries, hexadecimal."""
    epoch: int = 0
    """The newest epoch whose head was signed, or was about to be."""
    signed_at: float = 0.0
    """Unix seconds on the guarded clock, at the newest signature."""
    continues_database: bool = False
    """Whether the entries in the database may be those of a log under another key."""
    moved_at: float = 0.0
    """When the provider was stopped to be moved, unix seconds; 0 for a mark that belongs to its place."""


class HighWater:
    """The mark of one provider. Not thread-safe: one change at a time, which the publisher ensures."""

    def __init__(self, folder: Path, origin: str, now: float) -> None:
        """Open the mark of the log `origin` in a folder, at a unix time.

        Raises StoreError when it is missing, unreadable, of another key, or a copy.
        """
        self._file = folder / FILE
        try:
            content = parse_json(own_content(self._file), self._file)
            place = Place(*(int(content["place"][name]) for name in Place._fields))
            self.mark = Mark(**content["mark"])
        except FileNotFoundError:
            raise missing_mark(folder) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._file}: cannot be read ({error}); {NEW_LOG}") from None
        if self.mark.origin != origin:
            raise StoreError(
                f"{self._file}: it belongs to the key of {self.mark.origin}, and the signing key is that of {origin}. "
                f"Use the whole folder, or {NEW_LOG}"
            )
        self._check_place(place, now)

    @staticmethod
    def begin(folder: Path, mark: Mark) -> None:
        """Write the mark of a new signing key. Raises StoreError when the folder has one."""
        if (folder / FILE).exists():
            raise StoreError(f"{folder / FILE}: there is one already")
        _write(folder / FILE, mark)

    def check_log(self, entries: Sequence[bytes], origin: str) -> None:
        """Raises StoreError unless the entries of a database continue what was signed.

        `origin` names the log of the database's checkpoint; it is empty without one.
        """
        if origin and origin != self.mark.origin and not self.mark.continues_database:
            raise StoreError(
                f"the database holds the log {origin}, and the signing key is that of {self.mark.origin}. Mount or "
                f"restore the keys that belong to the database, or {NEW_LOG}"
            )
        if len(entries) < self.mark.size:
            raise StoreError(
                f"the database has {len(entries)} entries of the log, and {self.mark.size} were signed: it is an older "
                f"copy, or a new one. Restore the newer database, or {NEW_LOG}"
            )
        if self.mark.size and Frontier().add(*entries[: self.mark.size]).root.hex() != self.mark.root:
            raise StoreError(
                f"the database holds another log than the one that was signed. Restore the database that belongs to "
                f"these keys, or {NEW_LOG}"
            )

    def extend(self, frontier: Frontier, now: float) -> None:
        """Write down that a checkpoint over this tree is signed next. Raises StoreError for an older or other tree."""
        if frontier.size < self.mark.size:
            raise StoreError(f"a checkpoint of {frontier.size} entries is refused: {self.mark.size} were signed")
        if frontier.size > self.mark.size or not self.mark.root:
            self._put(replace(self.mark, size=frontier.size, root=frontier.root.hex(), signed_at=now))
        elif frontier.root.hex() != self.mark.root:
            raise StoreError("a checkpoint is refused: another log of this size was signed")

    def reserve_epoch(self, epoch: int, now: float) -> None:
        """Write down that the head of this epoch is signed next. Raises StoreError for a number that was used."""
        if epoch <= self.mark.epoch:
            raise StoreError(f"epoch {epoch} is refused: epoch {self.mark.epoch} was signed already")
        self._put(replace(self.mark, epoch=epoch, signed_at=now))

    def move(self, now: float) -> None:
        """Let the files start once at another place, within MOVE_SECONDS. Raises StoreError."""
        self._put(replace(self.mark, moved_at=now))

    def _put(self, mark: Mark) -> None:
        _write(self._file, mark)
        self.mark = mark

    def _check_place(self, place: Place, now: float) -> None:
        """Raises StoreError for the mark of a copied folder."""
        here = place.may_be(_place(self._file))
        if not self.mark.moved_at:
            if not here:
                raise StoreError(
                    f"{self._file}: this folder is a copy, and what was signed with the original since then is not "
                    f"known. Use the original. To move a provider, run `pharoah-provider move` there and copy its "
                    f"files again. Where the original is lost, {NEW_LOG}"
                )
            return
        if here:
            raise StoreError(f"{self._file}: this provider was moved; it runs where its files were copied to")
        if abs(now - self.mark.moved_at) > MOVE_SECONDS:
            raise StoreError(
                f"{self._file}: the provider was moved more than {MOVE_SECONDS / 3600:.0f} h ago; what it has signed "
                f"since then is not known. Use the files of the place where it ran last, or {NEW_LOG}"
            )
        self._put(replace(self.mark, moved_at=0.0))


def missing_mark(folder: Path) -> StoreError:
    """The error for a folder with a signing key and without a mark."""
    return StoreError(
        f"{folder / FILE}: it is missing. A signing key without it is a part of a copy, and what it has signed is not "
        f"known. Use the whole folder, or {NEW_LOG}"
    )


def newest_epoch(folder: Path) -> int:
    """The newest epoch in the mark of a folder, whatever log it belongs to; 0 where no mark can be read."""
    try:
        return int(parse_json(own_content(folder / FILE), FILE)["mark"]["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def state_folder(keys: str, db: Path) -> Path:
    """The folder of mark, clock and lock of a provider: that of its signing key, or one beside the database if the key
    comes from a key service."""
    return db.with_name(f"{db.name}.state") if is_command(keys) else Path(keys)


def _write(file: Path, mark: Mark) -> None:
    """Replace the mark durably, with the place of the new file in it. Raises StoreError."""
    try:
        write_atomically(
            file,
            lambda scratch: json.dumps({"mark": asdict(mark), "place": _place(scratch)._asdict()}),
            durable=True,
        )
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; nothing is signed before it is written") from None


def _place(file: Path) -> Place:
    """Raises OSError."""
    return Place(inode=file.stat().st_ino, born_ns=_born_ns(file))


_AT_FDCWD, _BIRTH_TIME, _STATX_BYTES = -100, 0x800, 256
"""Linux: statx(2) relative to the working directory, the flag of the birth time, the size of `struct statx`."""
_MASK, _BORN_SECONDS, _BORN_NANOSECONDS = slice(0, 4), slice(80, 88), slice(88, 92)
"""Where `struct statx` holds which fields are set, and the birth time."""


def _born_ns(file: Path) -> int:
    """When a file was made: nothing sets it, and a copy has its own. 0 where it is not recorded. Python 3.11 has no
    function for it."""
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:
        return 0
    result = ctypes.create_string_buffer(_STATX_BYTES)
    failed = statx(_AT_FDCWD, ctypes.c_char_p(os.fsencode(file)), 0, ctypes.c_uint(_BIRTH_TIME), result)
    if failed or not int.from_bytes(result.raw[_MASK], "little") & _BIRTH_TIME:
        return 0
    seconds = int.from_bytes(result.raw[_BORN_SECONDS], "little", signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(result.raw[_BORN_NANOSECONDS], "little")
