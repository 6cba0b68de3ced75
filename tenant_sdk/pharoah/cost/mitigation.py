"""A what-if change of a training job: a smaller micro-batch, checkpointing, shards instead of replicas, and so on.

This is only the value. `pharoah.dryrun.mitigations` patches torch so that a script runs with it. Scripts implement such
changes in different ways, so a mitigation names what to change and not how.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Mitigation:
    """The default values change nothing."""

    batches: int = 1
    """Number of micro-batches that each batch of a loader is split into."""
    checkpointing: bool = False
    """Activation checkpointing of every repeated layer."""
    autocast: bool = False
    """The forward pass computes in bfloat16 where torch's autocast allows it."""
    fused: bool = False
    """The optimizer uses its fused implementation, which makes no temporary copies of the parameters."""
    nodes: int = 1
    """Factor by which the number of nodes grows."""
    sharded: bool = False
    """Parameters are sharded (FSDP) where they were replicated (DDP)."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Mitigation:
        return cls(**json.loads(text))
