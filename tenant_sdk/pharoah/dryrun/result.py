"""What a dry run reports about a job."""

from __future__ import annotations

import json
from typing import NamedTuple

from pharoah.cost.step import StepCost
from pharoah_archetypes import Fingerprint

FINAL, PROVISIONAL, REASON = "final", "provisional", "reason"
"""Keys of the JSON lines that the child reports: the result of the second step, the result of the first step, and the
reason why there is none."""


class DryRun(NamedTuple):
    """What a dry run learned about a job."""

    fingerprint: Fingerprint
    cost: StepCost
    settings: dict[str, str]
    """What the script has set in torch, in its optimizers and in its loaders."""

    def to_json(self) -> str:
        return json.dumps([self.fingerprint.to_json(), self.cost.to_json(), self.settings])

    @classmethod
    def from_json(cls, text: str) -> DryRun:
        """Read what `to_json` wrote in the same release."""
        fingerprint, cost, settings = json.loads(text)
        return cls(Fingerprint.from_json(fingerprint), StepCost.from_json(cost), settings)
