"""What the storage returns that no other module defines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pharoah_learning.node_actions import NodeDecision
from pharoah_learning.release import ClassKey
from pharoah_protocol.tables.epoch_head import EpochHead


class SignedHead(NamedTuple):
    """The head of an epoch, as it is served."""

    head: EpochHead
    body: bytes
    """The encoded head, which is signed."""
    signature: bytes


class ReportedAmount(NamedTuple):
    """How much a tenant has reported within some time."""

    tenant: str
    rank_seconds: int
    rows: int
    """Rows of the storage: one for each stretch of equal values of a rank."""


class ImportedTable(NamedTuple):
    """A portable table of another provider, as it was imported."""

    provider: str
    """What the operator calls that provider."""
    key: bytes
    """Its public key."""
    content: str
    """The signed text (`pharoah_learning.portable_table`)."""


class StoredDecision(NamedTuple):
    """What is to be done with a node, since when, and who has decided it."""

    decision: NodeDecision
    decided_at: float
    """Unix seconds."""
    by_operator: bool


@dataclass(frozen=True)
class EpochRecord:
    """One sealed epoch as it was committed."""

    epoch: int
    release: int
    began: int
    """Unix seconds."""
    groups: tuple[ClassKey, ...]
    """The classes that were sealed; empty for an epoch from before they were recorded."""
    head: bytes
    signature: bytes
    seed_kept: bool
    """Whether the seed still exists; after the audit retention it is destroyed."""


class DeviceSignal(NamedTuple):
    """One signal of one device of a node."""

    metric: str
    device: str
