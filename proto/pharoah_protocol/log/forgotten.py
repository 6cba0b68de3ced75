"""Evidence that an operator has had forgotten: what is left out from learning, and that the log shows each change.

Nothing is deleted. A change is the newest word about one node or one result of a cell; the log has an entry with the
hash of all changes so far, so that an auditor sees what was left out from a release, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.log.view import FORGOTTEN, Entry, LogError


class ForgetKind(StrEnum):
    """What an operator can leave out from learning."""

    NODE = "node"
    """All evidence of a node up to that moment."""
    CELL = "cell"
    """One result of one cell."""


@dataclass(frozen=True)
class ForgetChange:
    """An operator's word that evidence is left out from learning, or that it counts again."""

    kind: ForgetKind
    name: str
    """Name of the node, or id of the result."""
    at: float
    """Unix seconds. What a node brings later counts."""
    undone: bool = False
    """Whether the evidence counts again."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ForgetChange:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        return cls(ForgetKind(data["kind"]), str(data["name"]), float(data["at"]), bool(data["undone"]))


@dataclass(frozen=True)
class ForgottenEvidence:
    """What is forgotten after some changes, oldest first."""

    nodes: dict[str, float]
    """Node to the unix second up to which its evidence is left out."""
    cells: frozenset[str]
    """Ids of results."""

    @classmethod
    def after(cls, changes: Iterable[ForgetChange]) -> ForgottenEvidence:
        """The newest word about each node and each result."""
        newest = {(change.kind, change.name): change for change in changes}
        held = [change for change in newest.values() if not change.undone]
        return cls(
            {change.name: change.at for change in held if change.kind is ForgetKind.NODE},
            frozenset(change.name for change in held if change.kind is ForgetKind.CELL),
        )

    def holds(self, node: str, ran_at: float, result_id: str = "") -> bool:
        """Whether a piece of evidence of this node and unix time, or this result, is left out."""
        return result_id in self.cells or ran_at <= self.nodes.get(node, float("-inf"))


def entry_of(changes: Sequence[ForgetChange]) -> Entry:
    """The entry of the log after the last of these changes, which are all changes so far."""
    parts = [
        length_prefixed(change.kind.encode(), change.name.encode(), repr(change.at).encode(), bytes([change.undone]))
        for change in changes
    ]
    return Entry.from_body(FORGOTTEN, len(changes), length_prefixed(b"pharoah/forgotten/v1", *parts))


def list_logged_changes(log: Sequence[bytes], head: Entry) -> list[bytes]:
    """The entries that show a change before this head was logged; in the whole log, where it does not have the head."""
    encoded = head.encode()
    before = log[: log.index(encoded)] if encoded in log else log
    return [entry for entry in before if _is_change(entry)]


def _is_change(entry: bytes) -> bool:
    try:
        return Entry.decode(entry).kind == FORGOTTEN
    except LogError:  # no honest log has such an entry; whoever reads the log says so
        return False
