"""The transparency log as its reader sees it: which entries it may have, and what follows from them.

The log is append-only and every tenant reads all of it: it grows by a few hashes a day. Epoch numbers only grow from
entry to entry, so there is one head per epoch; a tenant that is shown another head sees a log that lacks it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_protocol.log.merkle import Frontier, TreeError
from pharoah_protocol.tables.signed_messages import digest

_MAGIC = b"pharoah/log/v1"
HEAD, REVOKED, AUDIT, PSEUDONYM_KEY = b"head", b"revoked", b"audit", b"names"
KINDS = (HEAD, REVOKED, AUDIT, PSEUDONYM_KEY)


class LogError(ValueError):
    """An entry that an honest log never has, or an answer that is not in the log."""


@dataclass(frozen=True)
class Entry:
    """One entry: the kind and the hash of a signed message.

    `number` is the epoch of a head or of a list of revoked rows, the day (since 1970) of an audit log, or the period of
    a pseudonym key.
    """

    kind: bytes
    number: int
    digest: bytes

    def encode(self) -> bytes:
        return length_prefixed(_MAGIC, self.kind, u64(self.number), self.digest)

    @classmethod
    def of(cls, kind: bytes, number: int, body: bytes) -> Entry:
        return cls(kind, number, hashlib.sha256(body).digest())

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """Raises LogError unless `data` is exactly what `encode` gives."""
        try:
            magic, kind, number, digest = parts(data)
            entry = cls(kind, read_u64(number), digest)
        except ValueError:
            raise LogError("log: an entry of another form") from None
        if magic != _MAGIC or kind not in KINDS or len(digest) != 32 or entry.encode() != data:
            raise LogError("log: an entry of another form")
        return entry


@dataclass(frozen=True)
class View:
    """The log as far as it was read: its tree, and the newest entry of each kind."""

    frontier: Frontier = field(default_factory=Frontier)
    epoch: int = 0
    """The newest epoch; 0 before the first."""
    head: bytes = b""
    """SHA-256 of the head of that epoch."""
    revoked: bytes = b""
    """SHA-256 of the newest list of revoked rows of that epoch; empty while nothing was revoked."""
    day: int = 0
    period: int = 0
    pseudonym_key: bytes = b""
    """SHA-256 of the pseudonym key of that period; empty before the first."""

    def read(self, entries: Iterable[bytes]) -> View:
        """The view after more entries. Raises LogError for an entry that an honest log never has."""
        view = self
        for data in entries:
            view = replace(view._follow(Entry.decode(data)), frontier=view.frontier.add(data))
        return view

    def _follow(self, entry: Entry) -> View:
        if entry.kind == HEAD:
            if entry.number <= self.epoch:
                raise LogError(f"log: a second head for epoch {entry.number}, or one of the past")
            return replace(self, epoch=entry.number, head=entry.digest, revoked=b"")
        if entry.kind == REVOKED:
            if entry.number != self.epoch:
                raise LogError(f"log: rows revoked in epoch {entry.number}, which is not the newest")
            return replace(self, revoked=entry.digest)
        if entry.kind == PSEUDONYM_KEY:
            if entry.number <= self.period:
                raise LogError(f"log: a second pseudonym key for period {entry.number}, or one of the past")
            return replace(self, period=entry.number, pseudonym_key=entry.digest)
        if entry.number <= self.day:
            raise LogError(f"log: a second audit log for day {entry.number}, or one of the past")
        return replace(self, day=entry.number)

    def check(self, head: bytes, revoked: bytes) -> None:
        """Raises LogError unless these are the newest head and list of revoked rows."""
        if hashlib.sha256(head).digest() != self.head:
            raise LogError("log: this head is not the newest one in it")
        if digest(revoked) != self.revoked:
            raise LogError("log: this is not the newest list of revoked rows in it")

    def to_json(self) -> dict[str, object]:
        return {
            "size": self.frontier.size,
            "subtrees": [part.hex() for part in self.frontier.subtrees],
            "epoch": self.epoch,
            "head": self.head.hex(),
            "revoked": self.revoked.hex(),
            "day": self.day,
            "period": self.period,
            "pseudonym_key": self.pseudonym_key.hex(),
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> View:
        """Raises LogError."""
        try:
            subtrees = tuple(bytes.fromhex(part) for part in data["subtrees"])  # type: ignore[attr-defined]
            numbers = (int(str(data[name])) for name in ("size", "epoch", "day", "period"))
            size, epoch, day, period = numbers
            head, revoked, key = (bytes.fromhex(str(data[name])) for name in ("head", "revoked", "pseudonym_key"))
            return cls(Frontier(size, subtrees), epoch, head, revoked, day, period, key)
        except (KeyError, TypeError, ValueError, TreeError):
            raise LogError("log: the remembered view cannot be read") from None
