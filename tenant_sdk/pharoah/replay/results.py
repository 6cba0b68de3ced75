"""What a node has computed of a saved step, as a file that other nodes' results are compared with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from pharoah.replay.step_file import StepFileError

FORMAT = 1


class RepeatOutcome(NamedTuple):
    """One way in which repeats came out."""

    digests: list[str]
    """The digest of each operator; none where this stands for all outcomes that are not kept."""
    repeats: int
    """How many repeats had exactly these."""


@dataclass(frozen=True)
class NodeResult:
    """The repeats of one node."""

    step: str
    """The id of the saved step."""
    node: str
    outcomes: list[RepeatOutcome]
    """What came of its repeats, the most frequent outcome first. Of the distinct ones some are kept; where there are
    more, the last one stands for the others."""

    @property
    def repeats(self) -> int:
        return sum(one.repeats for one in self.outcomes)

    @property
    def steady(self) -> list[str] | None:
        """The digests that all repeats had; None when they differ."""
        return self.outcomes[0].digests if len(self.outcomes) == 1 else None

    def write(self, path: Path) -> None:
        """Raises StepFileError."""
        try:
            path.write_text(json.dumps({"format": FORMAT, **asdict(self)}) + "\n")
        except OSError as error:
            raise StepFileError(f"{path}: {error.strerror}") from None


def read_result(path: Path, step: str) -> NodeResult:
    """Read what `write` wrote. Raises StepFileError, also for a result of another step."""
    try:
        data = json.loads(path.read_text())
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        found = NodeResult(**data)
        outcomes = [
            RepeatOutcome([str(digest) for digest in digests], int(repeats)) for digests, repeats in found.outcomes
        ]
    except OSError as error:
        raise StepFileError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StepFileError(f"{path}: not a result; `pharoah replay FILE --out {path}` writes one") from None
    if found.step != step or not outcomes:
        raise StepFileError(f"{path}: a result of another step: {found.step}, not {step}")
    return NodeResult(found.step, found.node, outcomes)
