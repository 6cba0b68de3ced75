"""The agent of the node shows trouble of the node, or of a device that the job computes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah_protocol.vocabulary import Attribution


@dataclass
class _NodeSignals:
    """Since when each signal shows trouble, in unix seconds."""

    wants_lateness = False
    _since: dict[str, float] = field(default_factory=dict)

    def look(self, view: View) -> Iterator[Condition]:
        shown = {f"{one.name}:{one.device}": one for one in view.signals if one.trouble and one.value > 0}
        self._since = {key: self._since.get(key, view.unix) for key in shown}
        for key, one in shown.items():
            where = one.device or "this node"
            yield Condition(
                key=f"signal:{key}",
                resource=one.resource,
                fault_domain=Attribution.NODE,
                what=f"{where}: {one.name.replace('_', ' ')}",
                where=where,
                likely=f"the agent of the node measures {one.measures}",
                action="save a checkpoint; move the job to another node if this goes on",
                evidence=f"signal {one.name} of the node's agent",
                since=self._since[key],
                checkpoint=True,
            )


DETECTOR = Detector(
    "node_signals",
    "trouble of the node, or of a device that the job computes on, as the agent of the node shows it",
    _NodeSignals,
    of_machine=True,
)
