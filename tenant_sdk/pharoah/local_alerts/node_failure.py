"""The node is likely to fail, by the hazard model that the provider has learned from all its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah_protocol.vocabulary import Attribution


@dataclass
class _NodeFailure:
    """Since when the node has been likely to fail, in unix seconds; 0 while it is not."""

    wants_lateness = False
    _since: float = 0.0

    def look(self, view: View) -> Iterator[Condition]:
        forecast = view.forecast
        if forecast is None or not forecast.alarming:
            self._since = 0.0
            return
        self._since = self._since or view.unix
        known = f"trouble of its {forecast.resource.replace('_', ' ')}" if forecast.resource else "its trouble"
        yield Condition(
            key="node_failure",
            resource=forecast.resource,
            fault_domain=Attribution.NODE,
            what=f"this node fails within {forecast.hours} hours with a probability of {forecast.probability:.0%}",
            where="this node",
            likely=f"{known}, as nodes had it that failed soon after",
            action="save a checkpoint; move the job to another node",
            evidence=f"signals of the node's agent; a model of {forecast.failures} failures of {forecast.nodes} nodes",
            since=self._since,
            checkpoint=True,
        )


DETECTOR = Detector(
    "node_failure",
    "a node that is likely to fail, by its own signals and the hazard model of the provider",
    _NodeFailure,
)
