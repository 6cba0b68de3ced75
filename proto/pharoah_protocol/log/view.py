"""The transparency log as its reader sees it: which entries it may have, and what follows from them.

The log is append-only and every tenant reads all of it: it grows by a few hashes a day. Epoch numbers only grow from
entry to entry, so there is one head per epoch; a tenant that is shown another head sees a log that lacks it. Times may
go back: a provider whose clock was ahead for a while seals a head with an earlier time, and logs days and periods that
it has passed over. Each day and each period is in the log at most once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_protocol.log.merkle import Frontier, TreeError
from pharoah_protocol.log.number_set import NumberSet
from pharoah_protocol.tables.signed_messages import digest

_MAGIC = b"pharoah/log/v1"
HEAD, REVOKED, AUDIT, PSEUDONYM_KEY, FORGOTTEN = b"head", b"revoked", b"audit", b"names", b"forgotten"
KINDS = (HEAD, REVOKED, AUDIT, PSEUDONYM_KEY, FORGOTTEN)
MAX_PSEUDONYM_KEYS = 16
"""Keys that a view remembers: that of the current period, those around it, and those that a wrong clock has named."""


class LogError(ValueError):
    """An entry that an honest log never has, or an answer that is not in the log."""


@dataclass(frozen=True)
class Entry:
    """One entry: the kind and the hash of a signed message.

    `number` is the epoch of a head or of a list of revoked rows, the day (since 1970) of an audit log, the period of a
    pseudonym key, or how often an operator has changed which evidence is forgotten.
    """

    kind: bytes
    number: int
    digest: bytes

    def encode(self) -> bytes:
        return length_prefixed(_MAGIC, self.kind, u64(self.number), self.digest)

    @classmethod
    def from_body(cls, kind: bytes, number: int, body: bytes) -> Entry:
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
    days: NumberSet = field(default_factory=NumberSet)
    """Days (since 1970) whose audit log is in the log."""
    periods: NumberSet = field(default_factory=NumberSet)
    """Periods whose pseudonym key is in the log."""
    pseudonym_keys: Mapping[int, bytes] = field(default_factory=dict)
    """By period: SHA-256 of its pseudonym key, for the periods that were logged last."""
    forgotten: int = 0
    """How often it has changed which evidence is forgotten (`pharoah_protocol.log.forgotten`)."""

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
            if entry.number in self.periods:
                raise LogError(f"log: a second pseudonym key for period {entry.number}")
            keys = dict([*self.pseudonym_keys.items(), (entry.number, entry.digest)][-MAX_PSEUDONYM_KEYS:])
            return replace(self, periods=self.periods.with_number(entry.number), pseudonym_keys=keys)
        if entry.kind == FORGOTTEN:
            if entry.number != self.forgotten + 1:
                raise LogError(f"log: change {entry.number} of forgotten evidence follows change {self.forgotten}")
            return replace(self, forgotten=entry.number)
        if entry.number in self.days:
            raise LogError(f"log: a second audit log for day {entry.number}")
        return replace(self, days=self.days.with_number(entry.number))

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
            "days": self.days.to_json(),
            "periods": self.periods.to_json(),
            "pseudonym_keys": [[period, key.hex()] for period, key in self.pseudonym_keys.items()],
            "forgotten": self.forgotten,
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> View:
        """Raises LogError."""
        try:
            subtrees = tuple(bytes.fromhex(part) for part in data["subtrees"])  # type: ignore[attr-defined]
            size, epoch, forgotten = (int(str(data[name])) for name in ("size", "epoch", "forgotten"))
            head, revoked = (bytes.fromhex(str(data[name])) for name in ("head", "revoked"))
            days, periods = (NumberSet.from_json(data[name]) for name in ("days", "periods"))
            keys = _keys_from_json(data["pseudonym_keys"])
            return cls(Frontier(size, subtrees), epoch, head, revoked, days, periods, keys, forgotten)
        except (KeyError, TypeError, ValueError, TreeError):
            raise LogError("log: the remembered view cannot be read") from None


def _keys_from_json(data: object) -> dict[int, bytes]:
    """Keys by period. Raises ValueError, TypeError."""
    if not isinstance(data, list):
        raise TypeError("pseudonym keys are a list")
    return {int(period): bytes.fromhex(key) for period, key in data}
