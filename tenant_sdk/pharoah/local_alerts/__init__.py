"""Alerts that the sidecar raises by itself, from what it sees on its own machine: no consent, no probe, no leakage.

Each public module holds one detector. To add one, add a module with one `Detector`.
"""

from __future__ import annotations

from pharoah.local_alerts._book import AlertBook
from pharoah.local_alerts._detector import GROUP, Condition, Detector, NodeForecast, View, Watching, detectors

__all__ = ["GROUP", "AlertBook", "Condition", "Detector", "NodeForecast", "View", "Watching", "detectors"]
