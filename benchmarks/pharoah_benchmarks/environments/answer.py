"""What the builder of environments answers, and how long it may take."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pharoah_system.bounded_reading import parse_json

BUILD_SECONDS = 1800.0
"""The longest time that one build may take: torch with all that it needs is several gigabytes."""


class BuildError(Exception):
    """An environment cannot be built here; the message says why."""

    def __init__(self, reason: str, *, may_be_tried_again: bool = False) -> None:
        """`may_be_tried_again`: whether the reason may pass, such as a full disk or an index that is away."""
        super().__init__(reason)
        self.may_be_tried_again = may_be_tried_again


@dataclass(frozen=True, kw_only=True)
class BuildAnswer:
    """The Python of an environment, or why there is none."""

    python: str = ""
    reason: str = ""
    may_be_tried_again: bool = False
    """Whether the reason may pass."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BuildAnswer:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError."""
        data = parse_json(text, "answer")
        again = data["may_be_tried_again"] is True
        return cls(python=str(data["python"]), reason=str(data["reason"]), may_be_tried_again=again)
