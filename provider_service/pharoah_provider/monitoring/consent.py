"""Who must agree before micro-benchmarks run on a node: one rule for every order, whatever it is for.

A micro-benchmark takes time of the cores that it runs on, and memory bandwidth and cache of the whole host. So every
run on every node of that host is asked. Silence is not consent: a run that has stopped reporting may go on computing
with a dead sidecar, so nothing runs beside it until it has ended, or until it was lost and its node was seen empty.
A run whose node ticket was not renewed may have left its node to somebody else, so its word does not count either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from pharoah_provider.domain import Node, Run

SILENCE_SECONDS = 60.0
"""A run that has not reported for so long has no say: its sidecar retries at least every 18 seconds."""
OLDEST_TICKET_SECONDS = 900.0
"""A run whose newest node ticket is older has no say, and its reports are refused. Sidecars send a new ticket every
eight minutes, so an agent may be away for seven minutes before anything happens."""


class Refusal(StrEnum):
    """Why no micro-benchmark may run on a node now."""

    NOT_AGREED = "a run on the host has not agreed"
    SILENT = "a run on the host is silent"
    TICKET_TOO_OLD = "a run on the host has an old node ticket"
    NOT_SETTLED = "a run on the host has just begun"
    NOT_SEEN_GONE = "a run on the host was lost and its node was not seen empty since"


@dataclass(frozen=True)
class Presence:
    """A run that is on its node as far as anybody knows. Times are seconds of the steady clock."""

    run: Run
    began_at: float
    heard_at: float
    """When it last joined or reported; minus infinity when that was before the provider was restarted."""
    ticket_at: float
    """When its newest node ticket was issued."""
    lost: bool = False
    """Whether the provider has ended it, because it was silent for too long."""


@dataclass(frozen=True)
class Permission:
    """Micro-benchmarks may run on a node now, as far as the runs on its host are concerned."""

    node: str
    beside_job: bool
    """Whether a run uses the cores of the node."""
    limit_seconds: float
    """Time of one micro-benchmark that every run on the host has agreed to; infinite when there is none."""
    look_at: tuple[str, ...]
    """Nodes of the host whose cores no run uses: their agents must see them empty first."""


def permission(
    node: Node, known: Iterable[Node], present: Sequence[Presence], now: float, settle_seconds: float
) -> Permission | Refusal:
    """Whether micro-benchmarks may run on `node` at `now` (steady clock).

    `known` are all nodes, `present` all runs that may go on, `settle_seconds` is how long a run is left alone after it
    has begun.
    """
    host = {node.node: node, **{other.node: other for other in known if other.shares_host(node)}}
    concerned = [one for one in present if one.run.node in host]
    for refusal in (_refusal(one, now, settle_seconds) for one in concerned):
        if refusal is not None:
            return refusal
    used = [host[one.run.node] for one in concerned]
    return Permission(
        node=node.node,
        beside_job=any(node.shares_cores(other) or node.node == other.node for other in used),
        limit_seconds=min((one.run.limit_seconds for one in concerned), default=inf),
        look_at=tuple(
            sorted(
                name
                for name, one in host.items()
                if not any(one.shares_cores(other) or name == other.node for other in used)
            )
        ),
    )


def _refusal(one: Presence, now: float, settle_seconds: float) -> Refusal | None:
    """Why this run keeps micro-benchmarks off its host now; None when it agrees."""
    if one.lost:
        return Refusal.NOT_SEEN_GONE
    if not one.run.beside_job:
        return Refusal.NOT_AGREED
    if now - one.heard_at >= SILENCE_SECONDS:
        return Refusal.SILENT
    if now - one.ticket_at >= OLDEST_TICKET_SECONDS:
        return Refusal.TICKET_TOO_OLD
    if now - one.began_at < settle_seconds:
        return Refusal.NOT_SETTLED
    return None
