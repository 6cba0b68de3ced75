"""What is remembered of a provider's log, and how the memories of two processes are joined.

Several jobs of one user may read the log at the same time. Two memories are of one log when the larger one continues
the smaller one; if it does not, the provider has signed both, and that is evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pharoah_protocol.log.checkpoint import Note
from pharoah_protocol.log.merkle import Frontier
from pharoah_protocol.log.view import LogError, View

TRAIL_ENTRIES = 64
"""Entries that are remembered, a month of an ordinary log. Jobs that read it at the same time differ by fewer."""
HEADS_KEPT = 2
"""A tenant finishes the questions that it has begun in the epoch before the current one."""


class VerificationError(ValueError):
    """An answer that is rejected; `evidence` is what the provider has signed, if that shows misbehaviour."""

    def __init__(self, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence


@dataclass(frozen=True)
class ShownHead:
    """The head of an epoch as it was shown, and its signature, in hexadecimal digits."""

    body: str
    signature: str


@dataclass(frozen=True)
class Trail:
    """The newest entries of a log, and the tree before them."""

    begun: Frontier = field(default_factory=Frontier)
    entries: tuple[bytes, ...] = ()

    def extend(self, entries: Iterable[bytes]) -> Trail:
        """The trail after more entries; the oldest ones go into the tree."""
        every = (*self.entries, *entries)
        kept = every[-TRAIL_ENTRIES:]
        return Trail(self.begun.add(*every[: len(every) - len(kept)]), kept)

    def root_at(self, size: int) -> bytes | None:
        """The root of the log when it had so many entries; None where the trail does not reach back to."""
        if not self.begun.size <= size <= self.begun.size + len(self.entries):
            return None
        return self.begun.add(*self.entries[: size - self.begun.size]).root


@dataclass(frozen=True)
class LogMemory:
    """One log as far as it was read."""

    view: View = field(default_factory=View)
    note: bytes = b""
    """The checkpoint of that view; empty before the first."""
    trail: Trail = field(default_factory=Trail)
    heads: Mapping[int, ShownHead] = field(default_factory=dict)
    """By epoch: the newest heads that were shown."""

    @property
    def size(self) -> int:
        """How many entries of the log have been read."""
        return self.view.frontier.size

    def read(self, entries: Iterable[bytes]) -> LogMemory:
        """The memory after more entries, without a checkpoint of them. Raises LogError."""
        listed = list(entries)
        return replace(self, view=self.view.read(listed), trail=self.trail.extend(listed))

    def with_head(self, epoch: int, shown: ShownHead) -> LogMemory:
        """The memory with the head of an epoch. Raises VerificationError when another one was shown."""
        if (known := self.heads.get(epoch, shown)).body != shown.body:
            heads = [vars(known), vars(shown)]
            raise VerificationError(f"two heads for epoch {epoch}", {"kind": "two heads", "heads": heads})
        return replace(self, heads=_newest({**self.heads, epoch: shown}))

    def other_log(self, checkpoint: bytes) -> dict[str, Any]:
        """Evidence that a signed checkpoint of at most our size is not of our log, as far as it can be shown."""
        note = Note.decode(checkpoint).checkpoint
        both = [self.note.decode(), checkpoint.decode()]
        if self.trail.root_at(note.size) in (None, note.root) or note.size == self.size:
            return {"kind": "two logs", "checkpoints": both}
        return {
            "kind": "forked log",
            "checkpoints": both,
            "begun_size": self.trail.begun.size,
            "begun_subtrees": [part.hex() for part in self.trail.begun.subtrees],
            "entries": [entry.hex() for entry in self.trail.entries],
        }

    def join(self, other: LogMemory) -> LogMemory:
        """What both have seen: the larger view, and the heads of both. Raises VerificationError for two logs."""
        smaller, larger = sorted((self, other), key=lambda memory: memory.size)
        if smaller.size and larger.trail.root_at(smaller.size) not in (None, smaller.view.frontier.root):
            raise VerificationError("two jobs of this machine were shown two logs", larger.other_log(smaller.note))
        joined = larger
        for epoch, shown in smaller.heads.items():
            joined = joined.with_head(epoch, shown)
        return joined

    def to_json(self) -> dict[str, Any]:
        """The content of a file."""
        return {
            "view": self.view.to_json(),
            "checkpoint": self.note.decode(),
            "trail": {
                "size": self.trail.begun.size,
                "subtrees": [part.hex() for part in self.trail.begun.subtrees],
                "entries": [entry.hex() for entry in self.trail.entries],
            },
            "heads": {str(epoch): vars(head) for epoch, head in self.heads.items()},
        }

    @classmethod
    def from_json(cls, data: Any) -> LogMemory:
        """Raises ValueError, KeyError, TypeError, AttributeError for what `to_json` does not give."""
        begun = Frontier(int(data["trail"]["size"]), tuple(bytes.fromhex(part) for part in data["trail"]["subtrees"]))
        trail = Trail(begun, tuple(bytes.fromhex(entry) for entry in data["trail"]["entries"]))
        heads = {
            int(epoch): ShownHead(str(head["body"]), str(head["signature"])) for epoch, head in data["heads"].items()
        }
        memory = cls(View.from_json(data["view"]), str(data["checkpoint"]).encode(), trail, heads)
        if trail.root_at(memory.size) != memory.view.frontier.root:
            raise LogError("log: the remembered entries do not lead to the remembered view")
        return memory


def _newest(heads: Mapping[int, ShownHead]) -> dict[int, ShownHead]:
    return dict(sorted(heads.items())[-HEADS_KEPT:])
