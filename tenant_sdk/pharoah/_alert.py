"""Alerts: what a running job learns about the node under it."""

from __future__ import annotations

import textwrap
import time
from dataclasses import dataclass
from typing import Any

from pharoah_protocol.incident_states import IncidentState
from pharoah_protocol.typed_json import read_object
from pharoah_protocol.vocabulary import Resource
from pharoah_system.text import printable_lines


@dataclass(frozen=True)
class Alert:
    """One change of one alert. An alert fires once (`confirmed`) and is resolved once (`cleared`)."""

    alert_id: str
    state: IncidentState
    node_alias: str
    fault_domain: str
    """node, fabric, software, neighbour or unknown."""
    what: str
    evidence: str
    since: float
    """Unix seconds when it began."""
    at: float
    """Unix seconds of this change."""
    step_ratio: float
    """Step time over the run's own baseline; 1.0 is as before."""
    resource: Resource | None = None
    """What is short or sick, as far as it is known."""
    likely: str = ""
    """The likely cause."""
    action: str = ""
    """What to do."""
    failure_from: float = 0.0
    failure_until: float = 0.0
    """Unix seconds between which the job will fail if nothing changes; 0 when that is not known."""
    checkpoint: bool = False
    """Whether the job should save a checkpoint now."""
    validation: bool = False
    """Whether micro-benchmarks on the node may show its cause."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Alert:
        """Raises ValueError, which names the field that is wrong."""
        return read_object(cls, data, "alert")

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.at))
        began = time.strftime("%H:%M:%S", time.localtime(self.since))
        lines = [
            f"{clock} pharoah {self.state.upper()}  {self.what}  since {began}",
            f"  where     {self.node_alias} ({self.resource or self.fault_domain})",
            f"  evidence  {self.evidence}",
        ]
        if self.state.is_open:
            lines += _wrap("likely", self.likely) + _wrap("to do", self.action)
        return printable_lines("\n".join(lines))


_MAX_LINE_LENGTH = 80
_INDENT = " " * 12


def _wrap(name: str, text: str) -> list[str]:
    """A named text in lines that fit a terminal; none for an empty one."""
    return (
        textwrap.wrap(text, _MAX_LINE_LENGTH, initial_indent=f"  {name:10}", subsequent_indent=_INDENT) if text else []
    )
