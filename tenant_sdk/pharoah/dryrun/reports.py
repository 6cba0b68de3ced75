"""What the child of a dry run reports: JSON lines, each at once, because a script may swallow any exception.

Imported before the sandbox is closed, so it imports nothing that has threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from pharoah._errors import UnknownReason
from pharoah.cost.step import REPORT_LIMITS
from pharoah.dryrun.audit_hook import SideEffect
from pharoah.dryrun.places import place_of_fault
from pharoah.torch_releases import doubts
from pharoah_system.bounded_reading import parse_json

ENDED = "the script ended before an optimizer stepped"
"""The reason of a script that ended as it should, but too early."""
_MAX_REASON_CHARACTERS = 300


class Decision(NamedTuple):
    """Which way a branch on an unknown value went."""

    place: str
    """File and line, as `train.py:42`."""
    line: str
    """The source line."""
    holds: bool
    """Whether the condition was taken for true."""

    def __str__(self) -> str:
        return f"{self.place}: `{self.line}`" if self.line else self.place


class ReportKind(StrEnum):
    """What one line of the child's report holds."""

    FINAL = "final"
    """The result of a way."""
    PROVISIONAL = "provisional"
    """The result of a step of a way that a later step may replace."""
    REASON = "reason"
    """Why a way gives no result."""
    MISSING = "missing"
    """The name of an extension that the script needs and that cannot be imported."""
    BRANCH = "branch"
    """A branch whose other way will be followed as well."""


class ReportLine(NamedTuple):
    """One line of the child's report."""

    kind: ReportKind
    content: str
    """A result or a reason; empty for a branch."""
    decisions: tuple[Decision, ...]
    """The decisions that led to it."""

    def to_json(self) -> str:
        return json.dumps([self.kind, self.content, self.decisions])

    @classmethod
    def from_json(cls, text: bytes | str) -> ReportLine:
        """Raises ValueError or TypeError for what `to_json` has not written."""
        kind, content, decisions = parse_json(text, "report", REPORT_LIMITS)
        if not isinstance(content, str):
            raise TypeError("content is not a text")
        return cls(ReportKind(kind), content, tuple(Decision(*decision) for decision in decisions))


class Report:
    """Writes lines to the parent. Each states the decisions that led to it."""

    def __init__(self, results: int) -> None:
        self.results = results
        """The open file for the lines."""
        self.decisions: list[Decision] = []
        """The decisions on the way of this process."""

    def write(self, kind: ReportKind, content: str = "") -> None:
        """Write one line; a parent that has closed the pipe does not matter."""
        left = ReportLine(kind, content, tuple(self.decisions)).to_json().encode() + b"\n"
        try:
            while left:
                left = left[os.write(self.results, left) :]
        except OSError:
            pass

    def reason(self, reason: str) -> None:
        """Write why there is no result, with what is known against this torch."""
        self.write(ReportKind.REASON, "; ".join(filter(None, (reason, doubts()))))

    def branch(self, decision: Decision) -> None:
        """Write that both ways of a branch will be followed."""
        self.decisions.append(decision)
        self.write(ReportKind.BRANCH)
        self.decisions.pop()


@contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Report what goes wrong inside, and end this process in any case."""
    try:
        yield
    except SideEffect:
        pass  # the hook has reported it
    except UnknownReason as reason:
        report.reason(str(reason))
    except BaseException as fault:  # noqa: BLE001 - nothing may leave the child
        report.reason(_reason(fault))
    finally:
        os._exit(0)


def _reason(fault: BaseException) -> str:
    """One line: what was raised, and where in the user's own files."""
    first_line = str(fault).strip().partition("\n")[0][:_MAX_REASON_CHARACTERS]
    return f"{type(fault).__name__}: {first_line} ({place_of_fault(fault.__traceback__)})"
