"""Messages to a node's agent, and its answers: a stream with one line for each message.

A sidecar sends `TicketRequest`, answered by `TicketAnswer`; `SignalsRequest`, answered by `SignalsAnswer`; and
`ForecastRequest`, answered by `ForecastAnswer`. `pharoah-agent check` sends `NodeStateRequest`, answered by
`NodeStateAnswer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pharoah_protocol.incident_states import IncidentState
from pharoah_protocol.local_messages import Message, message_class
from pharoah_protocol.vocabulary import NodeAction, Resource


@message_class("ticket_request")
@dataclass(frozen=True)
class TicketRequest(Message):
    """Answer: `TicketAnswer`."""


@message_class("ticket_answer")
@dataclass(frozen=True)
class TicketAnswer(Message):
    """A signed ticket for one run on this node."""

    body: str
    signature: str
    """Hex."""
    profile: Any = None
    """The limits of the node, as JSON. The receiver reads them with `read_received_profile`: what an agent of another
    release writes there must not cost the ticket."""


@dataclass(frozen=True)
class SignalReading:
    """What one signal of the node, or of a device of the job, shows now."""

    name: str
    device: str
    """Empty for the node itself."""
    value: float
    measures: str
    """What it measures, in words."""
    resource: Resource
    trouble: bool
    """Whether the value states trouble: 1 while there is some, else 0."""
    used_share: bool = False
    """Whether the value is the share of the device's memory that is in use, by this job alone: at 1 nothing is left."""


@message_class("signals_request")
@dataclass(frozen=True)
class SignalsRequest(Message):
    """What do the signals of this node show? Answer: `SignalsAnswer`."""


@message_class("signals_answer")
@dataclass(frozen=True)
class SignalsAnswer(Message):
    """Exact values, which stay on the node: the provider hears of trouble only."""

    readings: tuple[SignalReading, ...] = ()


@message_class("forecast_request")
@dataclass(frozen=True)
class ForecastRequest(Message):
    """What is needed to forecast failures of this node? Answer: `ForecastAnswer`."""


@message_class("forecast_answer")
@dataclass(frozen=True)
class ForecastAnswer(Message):
    """The hazard model of the provider, and the features of this node and of the devices of the job."""

    model: str = ""
    """JSON, as it was signed (`pharoah_protocol.hazard_model`); empty while there is none."""
    signature: str = ""
    """Hex."""
    features: dict[str, float] = field(default_factory=dict)
    """By name."""


@message_class("node_state_request")
@dataclass(frozen=True)
class NodeStateRequest(Message):
    """Answer: `NodeStateAnswer`."""


@message_class("node_state_answer")
@dataclass(frozen=True)
class NodeStateAnswer(Message):
    """What the provider has validated of the node; nothing in it is about a job."""

    state: IncidentState | None = None
    """Confirmed or quiet; None while the agent has not heard from the provider."""
    since: int = 0
    """Unix seconds; 0 while nothing is known against the node."""
    evidence: str = ""
    action: NodeAction = NodeAction.KEEP
    """What is to be done with the node because of its class."""
    advice: str = ""
    """The class of the node and what to do, for people."""
    enforced: bool = False
    """Whether the action is to be carried out, and not only recommended."""
