"""What the GPUs or the processors of a node have computed of a saved step, as a file for comparisons with others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pharoah.replay.step_file import StepFileError
from pharoah_system.bounded_reading import JsonLimits, UnreadableInput, read_json_file
from pharoah_system.files import write_output

FORMAT = 2
RESULT_LIMITS = JsonLimits(max_bytes=12 << 20)
"""Sixteen outcomes of a step with 25,000 operators are 8 MB on one GPU; what the values take is bounded as well."""


class RepeatOutcome(NamedTuple):
    """One way in which repeats came out."""

    digests: list[str]
    """The digest of each operator; none where this stands for all outcomes that are not kept."""
    repeats: int
    """How many repeats had exactly these."""


@dataclass(frozen=True)
class NodeResult:
    """The repeats of one node, on its processors or on one GPU."""

    step: str
    """The id of the saved step."""
    node: str
    outcomes: list[RepeatOutcome]
    """What came of its repeats, the most frequent outcome first. Of the distinct ones some are kept; where there are
    more, the last one stands for the others."""
    gpu: int | None = None
    """The number of the GPU among those that torch sees; None where the processors have computed."""

    @property
    def place(self) -> str:
        """What people know it by."""
        return self.node if self.gpu is None else f"{self.node} gpu{self.gpu}"

    @property
    def repeats(self) -> int:
        return sum(one.repeats for one in self.outcomes)

    @property
    def steady(self) -> list[str] | None:
        """The digests that all repeats had; None when they differ."""
        return self.outcomes[0].digests if len(self.outcomes) == 1 else None


def write_results(path: Path, results: Sequence[NodeResult]) -> None:
    """Write the results of one node. Raises StepFileError."""
    try:
        write_output(path, json.dumps({"format": FORMAT, "results": [asdict(one) for one in results]}) + "\n")
    except OSError as error:
        raise StepFileError(f"{path}: {error.strerror}") from None


def read_results(path: Path, step: str) -> list[NodeResult]:
    """Read what `write_results` wrote. Raises StepFileError, also for results of another step."""
    try:
        data = read_json_file(path, RESULT_LIMITS)
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        found = [_read(one) for one in data["results"]]
    except OSError as error:
        raise StepFileError(f"{path}: {error.strerror}") from None
    except UnreadableInput as error:
        raise StepFileError(f"{error}; `pharoah replay FILE --out {path}` writes a result") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StepFileError(f"{path}: not a result; `pharoah replay FILE --out {path}` writes one") from None
    for one in found:
        if one.step != step:
            raise StepFileError(f"{path}: a result of another step: {one.step}, not {step}")
    return found


def _read(data: dict[str, Any]) -> NodeResult:
    """Raises ValueError, KeyError and TypeError."""
    outcomes = [RepeatOutcome([str(digest) for digest in digests], int(times)) for digests, times in data["outcomes"]]
    if not outcomes:
        raise ValueError("no repeats")
    return NodeResult(str(data["step"]), str(data["node"]), outcomes, None if data["gpu"] is None else int(data["gpu"]))
