"""What a dry run reports about a job."""

from __future__ import annotations

import json
from typing import NamedTuple

from pharoah.cost.step import REPORT_LIMITS, StepCost
from pharoah_archetypes import Fingerprint
from pharoah_system.bounded_reading import parse_json


class NextStage(NamedTuple):
    """The stage of a pipeline that follows the one that was dry-run."""

    rank: int
    """The rank that this one sends to."""
    last_rank: int
    """The last rank of the pipeline."""
    mail: str
    """Objects that were sent, as `pharoah.dryrun.pipeline_stages` writes them."""


class DryRun(NamedTuple):
    """What a dry run learned about a job."""

    fingerprint: Fingerprint
    cost: StepCost
    settings: dict[str, str]
    """What the script has set in torch, in its optimizers and in its loaders."""
    assumptions: tuple[str, ...] = ()
    """Values that the dry run made up and branches that it followed, one sentence each."""
    exploring_seconds: float = 0.0
    """How long branches were followed after the first result."""
    next_stage: NextStage | None = None
    """In a pipeline, the stage that follows."""
    processes: int = 1
    """Processes of the job on this node, as its launcher would start them."""

    def to_json(self) -> str:
        return json.dumps([self.fingerprint.to_json(), self.cost.to_json(), *self[2:]])

    @classmethod
    def from_json(cls, text: str) -> DryRun:
        """Read what `to_json` wrote in the same release."""
        fingerprint, cost, settings, assumptions, seconds, stage, processes = parse_json(text, "result", REPORT_LIMITS)
        return cls(
            Fingerprint.from_json(fingerprint),
            StepCost.from_json(cost),
            settings,
            tuple(assumptions),
            seconds,
            NextStage(*stage) if stage else None,
            processes,
        )
