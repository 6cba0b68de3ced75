"""The verdict on a job before its launch, with evidence and remedies."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from pharoah_protocol.typed_json import read_object
from pharoah_protocol.vocabulary import FindingSeverity, VerdictStatus
from pharoah_system.files import write_output
from pharoah_system.text import printable_lines, sanitize_text

_MAX_SUMMARY_LENGTH = 1000
"""Characters of a verdict in one line."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found, always with its numbers."""

    severity: FindingSeverity
    what: str
    evidence: str = ""
    """Counts and base rate: `5/5 runs failed; base 0/45`."""
    remedy: str = ""
    rung: str = ""
    """How specific the match was: exact, minor or major; empty for findings that no match led to."""
    code: str = ""
    """Which kind of finding it is (docs/tenant/verdicts.md lists them); it does not change when the words do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", FindingSeverity(self.severity))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Finding:
        """Raises ValueError, which names the field that is wrong."""
        return read_object(cls, data, "finding")

    def lines(self) -> list[str]:
        """For a terminal of 80 columns."""
        return [
            *_wrap(self.what, f"  {self.severity.upper():5} "),
            *_wrap(self.evidence, "        evidence  "),
            *_wrap(self.remedy, "        remedy    "),
        ]


@dataclass(frozen=True)
class Verdict:
    """What is known about this job on this node.

    `bool(verdict)` raises: ask `ok` or `blocking`, which differ on unknown.
    """

    status: VerdictStatus
    reason: str = ""
    """Why it is unknown or pending; empty otherwise."""
    findings: tuple[Finding, ...] = ()
    rung: str = ""
    runs: int = 0
    """Comparable runs the answer rests on."""
    release: int = 0
    epoch: int = 0
    run_id: str = ""
    latency_ms: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)
    """What left this machine: number of blinded inputs (or of keyed hashes) and bytes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", VerdictStatus(self.status))

    @property
    def ok(self) -> bool:
        """Whether it is known to work here; an unknown verdict is not ok."""
        return self.status == VerdictStatus.COMPATIBLE

    @property
    def blocking(self) -> bool:
        """Whether it is known to fail here."""
        return self.status == VerdictStatus.INCOMPATIBLE

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict is not true or false: use .ok or .blocking")

    def with_findings(self, *findings: Finding) -> Verdict:
        """The verdict with further findings: a block makes it incompatible, a warning turns compatible into warn."""
        severities = {finding.severity for finding in findings}
        status = VerdictStatus.INCOMPATIBLE if FindingSeverity.BLOCK in severities else self.status
        if status == VerdictStatus.COMPATIBLE and FindingSeverity.WARN in severities:
            status = VerdictStatus.WARN
        return replace(self, status=status, findings=(*self.findings, *findings))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Raises ValueError, which names the field that is wrong."""
        return read_object(cls, data, "verdict")

    def write(self, path: str) -> None:
        """Write the verdict as JSON for a scheduler, whole or not at all.

        Raises OSError, also where a device, a pipe or a folder has the name: it would be replaced by a file.
        """
        write_output(Path(path), self.to_json() + "\n", mode=0o644, only_file=True)

    def write_or_say(self, path: str, say: Callable[[str], None]) -> None:
        """Write the verdict, or say why it is not written: a file that cannot be written does not stop a job."""
        try:
            self.write(path)
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or error
            say(f"pharoah: verdict file {path}: {what}; not written")

    def summary(self) -> str:
        """One line."""
        text = self.reason or (self.findings[0].what if self.findings else "")
        return sanitize_text(f"{self.status.upper()}" + (f": {text}" if text else ""), _MAX_SUMMARY_LENGTH)

    def render(self) -> str:
        """The verdict for a terminal, at most 80 columns where the words allow."""
        head = f"VERDICT  {self.status.upper()}"
        if self.rung:
            head += f"   rung {self.rung}, n={self.runs} runs"
        if self.epoch:
            head += f"   release {self.release}, epoch {self.epoch}"
        if self.latency_ms:
            head += f"   {self.latency_ms:.0f} ms"
        lines = [head]
        if self.reason:
            lines += _wrap(self.reason, "  ")
        for finding in self.findings:
            lines += finding.lines()
        if self.sent:
            what = (
                f"{self.sent['hashes']} keyed hashes"
                if "hashes" in self.sent
                else f"{self.sent['inputs']} blinded inputs"
            )
            lines.append(f"  sent: {what}, {self.sent['bytes']} bytes, as for every job")
        return printable_lines("\n".join(lines))

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        import html  # in notebooks only

        return f"<pre>{html.escape(self.render())}</pre>"


def _wrap(text: str, first: str) -> list[str]:
    """Lines of at most 80 columns; nothing for no text."""
    return textwrap.wrap(text, 80, initial_indent=first, subsequent_indent=" " * len(first))


def unknown(reason: str, run_id: str = "") -> Verdict:
    """The verdict that nothing is known, and why."""
    return Verdict(VerdictStatus.UNKNOWN, reason=reason, run_id=run_id)
