"""The node is likely to fail, by the hazard model that the provider has learned from all its nodes.

A forecast speaks of the hours of its horizon, so an alert stands until so long after the last forecast that alarmed.
Risks move around their threshold, and the false alarms that the provider allows are not repeated within a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pharoah.local_alerts._detector import Condition, Detector, NodeForecast, View
from pharoah_protocol.vocabulary import Attribution


@dataclass
class _NodeFailure:
    wants_lateness = False
    _last: NodeForecast | None = None
    """The last forecast that alarmed, while it stands."""
    _last_at: float = 0.0
    """When it was seen, in seconds of the monotonic clock."""
    _since: float = 0.0
    """Since when one of them has stood, in unix seconds."""

    def look(self, view: View) -> Iterator[Condition]:
        if view.forecast is not None and view.forecast.alarming:
            self._since = self._since if self._last else view.unix
            self._last, self._last_at = view.forecast, view.at
        forecast = self._last
        if forecast is None:
            return
        if view.at - self._last_at >= forecast.hours * 3600.0:
            self._last = None
            return
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
    of_machine=True,
)
