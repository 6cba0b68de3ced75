"""What the signals of this node show now, and which cannot be read and why: `pharoah-agent signals`."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pharoah_provider.agent.signals import TROUBLE_UNIT, AgentSignal, NotOnThisNode, Reading

COLUMNS = 80
_WIDEST_DEVICE = 18


@dataclass
class SignalList:
    """The signals of one node at one moment."""

    readings: list[SignalReading] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    """The name of a signal to the reason why it has no reading."""

    @classmethod
    def read(cls, signals: Iterable[AgentSignal]) -> SignalList:
        """Read every signal once; an error in one is its reason."""
        found = cls()
        for signal in signals:
            try:
                readings = [SignalReading(signal, reading) for reading in signal.read()]
            except NotOnThisNode as reason:
                found.absent[signal.name] = str(reason)
                continue
            except Exception as error:  # noqa: BLE001 - a driver, or code of another distribution
                found.absent[signal.name] = f"{type(error).__name__}: {error}"
                continue
            found.readings += readings
            if not readings:
                found.absent[signal.name] = "no device of this node has it"
        return found

    def as_json(self) -> str:
        """One object with `readings` and `absent`, for programs."""
        rows = [
            {
                "signal": one.signal.name,
                "device": one.reading.device,
                "value": one.reading.value,
                "unit": one.signal.unit,
                "kind": one.signal.kind,
                "resource": one.signal.resource,
                "leaves_node": one.signal.leaves_node,
            }
            for one in self.readings
        ]
        absent = [{"signal": name, "reason": reason} for name, reason in self.absent.items()]
        return json.dumps({"readings": rows, "absent": absent})

    def as_table(self) -> str:
        """Lines of at most 80 columns, for people."""
        lines = list(_table(self.readings)) if self.readings else ["no signal of this node can be read"]
        if self.readings:
            lines += ["", "* leaves the node; counters are shown since they began, or since the log begins"]
        if self.absent:
            lines += ["", "cannot be read on this node:"]
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name, reason in self.absent.items():
            by_reason[reason].append(name)
        for reason, names in by_reason.items():
            lines += _wrap(reason, "  ") + _wrap(", ".join(names), "      ")
        return "\n".join(lines)


@dataclass(frozen=True)
class SignalReading:
    """One signal of one device."""

    signal: AgentSignal
    reading: Reading


def _table(readings: Sequence[SignalReading]) -> Iterator[str]:
    names = max(len(one.signal.name) for one in readings) + 1
    devices = min(max(6, *(len(one.reading.device) for one in readings)), _WIDEST_DEVICE)
    yield f"{'signal':{names}} {'device':{devices}} {'value':>12} unit"
    for one in readings:
        name = one.signal.name + "*" * one.signal.leaves_node
        unit = "trouble" if one.signal.unit == TROUBLE_UNIT else one.signal.unit
        device = _cut(one.reading.device, devices)
        yield f"{name:{names}} {device:{devices}} {one.reading.value:>12.10g} {unit}"[:COLUMNS].rstrip()


def _cut(device: str, width: int) -> str:
    """The end of a long name says more than its beginning: a number, or a port."""
    return device if len(device) <= width else f"~{device[1 - width :]}"


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
