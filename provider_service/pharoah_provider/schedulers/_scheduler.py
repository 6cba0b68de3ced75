"""What a scheduler is, and the commands for all nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pharoah_serving.identity import is_reserved_node

MARK = "pharoah: "
"""How the reasons begin that we give. Only what has such a reason is undone, never what people have drained."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Names that no scheduler reads as a pattern and no shell as anything else (RFC 952, RFC 1123)."""
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,:()/=_-]")


@dataclass(frozen=True)
class NodeOrder:
    """One node to drain or to return."""

    node: str
    drains: bool
    reason: str = ""

    @property
    def marked_reason(self) -> str:
        """The reason with our mark, without characters that mean something to a shell."""
        return _NOT_PLAIN.sub("", f"{MARK}{self.reason}")


@dataclass(frozen=True)
class Scheduler:
    """One scheduler. Raises ValueError without a name or help."""

    name: str
    help: str
    """What its commands do; plain text that ends without a full stop."""
    drain: Callable[[NodeOrder], str]
    """A line of a shell script that takes the node out of service; it may be run again."""
    back: Callable[[NodeOrder], str]
    """A line that returns it, if it was drained by the other one; it may be run again."""

    def __post_init__(self) -> None:
        if not self.name or not self.help:
            raise ValueError(f"scheduler {self.name!r}: name and help must not be empty")


def commands(scheduler: Scheduler, orders: Iterable[NodeOrder]) -> Iterator[str]:
    """One line of a shell script for each node. A node whose name is no host name, or a word that a scheduler reads as
    other nodes, is left out, with a comment."""
    for order in orders:
        if not _HOST.fullmatch(order.node) or is_reserved_node(order.node):
            shown = _NOT_PLAIN.sub("?", order.node)
            yield f"# {shown}: left out, because this is not the name of a host"
        else:
            yield scheduler.drain(order) if order.drains else scheduler.back(order)
