"""Trouble and failures of nodes: what a hazard model of nodes is learned from (`pharoah_learning.node_lives`)."""

from __future__ import annotations

from typing import NamedTuple

from pharoah_protocol.vocabulary import Resource

HOUR_SECONDS = 3600.0


class TroubleHour(NamedTuple):
    """Trouble that a device of a node had within one hour."""

    node: str
    signal: str
    device: str
    hour: int
    """Hours since 1970."""
    share: float
    """Part of the hour in which there was trouble."""


class NodeFailure(NamedTuple):
    """A failure of a node."""

    node: str
    since: float
    """Unix seconds."""
    until: float
    """Unix seconds; infinite while it goes on."""
    resource: Resource | None
    """What has failed, where that is known."""
