"""Messages of the two local sockets: ranks and the sidecar, and the sidecar and the node's agent.

A message is one frozen dataclass; its verb names it on the wire. To add a message, write its class here and add a
handler where it is received. Ranks import this module: standard library only.

Rank to sidecar (SEQPACKET, one message a packet): the classes from `Hello` to `End`. Sidecar to rank: the answers, and
`FlightRecordRequest`, `VerdictChanged` and `AlertRaised`, which come without a question. Sidecar to agent (stream, one
line each): `TicketRequest`, answered by `TicketAnswer`, `SignalsRequest`, answered by `SignalsAnswer`, and
`ForecastRequest`, answered by `ForecastAnswer`.
`pharoah-agent check` to the agent, in the same way: `NodeStateRequest`, answered by `NodeStateAnswer`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from pharoah_protocol.incident_states import IncidentState
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile
from pharoah_protocol.text import shown_value
from pharoah_protocol.typed_json import FieldError, read_object, to_json
from pharoah_protocol.vocabulary import EndState, NodeAction, Resource

LARGEST_MESSAGE_BYTES = 1 << 20


class MessageError(ValueError):
    """A packet that holds no message of this release; the message of the error names the verb or the field."""


class Message:
    """Base of all messages."""

    VERB: ClassVar[str] = ""


class Packet(NamedTuple):
    """A decoded packet."""

    message: Message
    wants_answer: bool


MESSAGES: dict[str, type[Message]] = {}
"""Every message by its verb."""

M = TypeVar("M", bound=Message)


def _message(verb: str) -> Callable[[type[M]], type[M]]:
    """Enter a class under its verb."""

    def enter(kind: type[M]) -> type[M]:
        kind.VERB = verb
        MESSAGES[verb] = kind
        return kind

    return enter


def encode(message: Message, *, wants_answer: bool = False) -> bytes:
    """One packet. A rank calls this up to four times a second while it trains, so the head is put together as text."""
    head = f'{{"verb":"{message.VERB}"' + (',"wants_answer":true' if wants_answer else "")
    body = to_json(vars(message))
    return (f"{head}}}" if body == "{}" else f"{head},{body[1:]}").encode()


def decode(packet: bytes) -> Packet:
    """The message in a packet. Raises MessageError."""
    data = _json_object(packet)
    verb, wants_answer = data.pop("verb", ""), data.pop("wants_answer", False)
    kind = MESSAGES.get(verb) if isinstance(verb, str) else None
    if kind is None:
        raise MessageError(f"verb {str(verb)[:80]!r} is not known to this release")
    if not isinstance(wants_answer, bool):
        raise MessageError(f"{verb}.wants_answer: bool was expected, not {wants_answer!r}")
    try:
        return Packet(read_object(kind, data, verb), wants_answer)
    except FieldError as error:
        raise MessageError(str(error)) from None


def decode_answer(packet: bytes, expected: type[M]) -> M:
    """The answer of a program that may be of another release: fields that this one does not know are left out.

    Raises MessageError for anything but the expected message.
    """
    data = _json_object(packet)
    data.pop("wants_answer", None)
    if (verb := data.pop("verb", "")) != expected.VERB:
        raise MessageError(f"{expected.VERB!r} was expected, not {shown_value(verb)}")
    try:
        return read_object(expected, data, expected.VERB, drop_unknown=True)
    except FieldError as error:
        raise MessageError(str(error)) from None


def _json_object(packet: bytes) -> dict[str, Any]:
    """Raises MessageError, also for what is nested too deeply to be read."""
    try:
        data = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"{packet[:80]!r} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise MessageError(f"{packet[:80]!r} is not a JSON object")
    return data


def wants_answer(packet: bytes) -> bool:
    """Whether the sender of a packet that cannot be decoded waits for an answer, as far as the packet shows it."""
    return b'"wants_answer":true' in packet


# Rank to sidecar.


@_message("hello")
@dataclass(frozen=True)
class Hello(Message):
    """A rank has connected. Answer: `HelloAnswer`."""

    rank: int
    ranks: int = 1
    """Ranks on this node."""
    may_dry_run: bool = False
    """Whether this rank may dry-run the job and ask about it."""


@_message("hello_answer")
@dataclass(frozen=True)
class HelloAnswer(Message):
    """The verdict so far, and whether the rank has to do something for it."""

    verdict: dict[str, Any]
    dry_run_needed: bool = False
    """Whether this rank is the one that has to dry-run the job; true for one rank of a node at most."""
    serves: bool = False
    """Whether the job is known to compute answers and to train nothing."""


@_message("check")
@dataclass(frozen=True)
class Check(Message):
    """Ask the provider about the job. Answer: `CheckAnswer`."""

    fingerprint: str = ""
    """As JSON; empty when there was no dry run."""
    pending: str = ""
    """Why there was no dry run."""


@_message("check_answer")
@dataclass(frozen=True)
class CheckAnswer(Message):
    """The verdict, and what is needed to judge the job's cost on this node."""

    verdict: dict[str, Any]
    profile: NodeProfile = NO_LIMITS
    """What the agent of this node states, as far as it can be used; without limits when no agent answers."""
    profile_dropped: tuple[str, ...] = ()
    """What the agent states and cannot be used, in words."""


@_message("launch")
@dataclass(frozen=True)
class Launch(Message):
    """The job starts. Answer, if one is wanted: `LaunchAnswer`."""

    ranks: int
    """Ranks on this node."""


@_message("launch_answer")
@dataclass(frozen=True)
class LaunchAnswer(Message):
    """The run is monitored under this id."""

    run_id: str


@_message("run_started")
@dataclass(frozen=True)
class RunStarted(Message):
    """What the run's record begins with."""

    command: str
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    """The record's groups; empty when there was no dry run."""


@_message("findings")
@dataclass(frozen=True)
class Findings(Message):
    """What this machine found out by itself before the launch."""

    findings: tuple[dict[str, Any], ...]
    step_seconds: float = 0.0
    """What a step should take on this node; 0 where what the node can do was not measured."""


@_message("steps")
@dataclass(frozen=True)
class Steps(Message):
    """Optimizer steps of one rank since its last message."""

    rank: int
    durations: Sequence[int]
    """Nanoseconds, in order."""
    resident: int
    """Bytes of resident memory after the last step."""


@_message("capture")
@dataclass(frozen=True)
class Capture(Message):
    """One real step of one rank."""

    rank: int
    fingerprint: str
    """As JSON."""
    operators: Sequence[str] = ()


@_message("register_responder")
@dataclass(frozen=True)
class RegisterResponder(Message):
    """This connection answers `FlightRecordRequest`."""

    rank: int


@dataclass(frozen=True)
class CollectiveCall:
    """The last collective that a rank called in one process group."""

    group: str
    ranks: str
    """The ranks of the group as torch prints them; empty where torch does not record them."""
    number: int
    """Counts the collectives of the group."""
    name: str
    sizes: str
    place: str = ""
    """File and line of the call; empty when autograd called."""


@dataclass(frozen=True)
class CollectiveStart:
    """When a rank called one collective."""

    group: str
    number: int
    """Counts the collectives of the group."""
    at_ns: int
    """Unix nanoseconds."""


@_message("flight_record")
@dataclass(frozen=True)
class FlightRecord(Message):
    """The answer to `FlightRecordRequest`."""

    rank: int
    calls: tuple[CollectiveCall, ...]
    starts: tuple[CollectiveStart, ...] = ()
    """When its last collectives were called, oldest first."""


@_message("listen")
@dataclass(frozen=True)
class Listen(Message):
    """This connection wants `VerdictChanged` and `AlertRaised`; the first `VerdictChanged` comes at once."""

    rank: int


@_message("status")
@dataclass(frozen=True)
class Status(Message):
    """Answer: `StatusAnswer`."""


@_message("status_answer")
@dataclass(frozen=True)
class StatusAnswer(Message):
    """The state of the run now."""

    run_id: str
    verdict: str
    """Its status."""
    connected: bool
    """Whether the provider acknowledged the last report."""
    node_alias: str
    windows_dropped: int
    """Seconds of reports that could not be kept while the provider was away."""
    ranks: tuple[int, ...]
    """Ranks that have stepped."""


@_message("ask_validation")
@dataclass(frozen=True)
class AskValidation(Message):
    """The user asks that the provider validate this node."""


@_message("end")
@dataclass(frozen=True)
class End(Message):
    """A rank, or the whole job, has ended. Answer: `Ended`."""

    state: EndState
    last: bool | None = None
    """Whether this ends the run; None lets the sidecar decide, which counts the ranks that are still connected."""
    status: int = 0
    """Exit code of the job's process, or -n for signal n, where the sender has waited for it."""
    error: str = ""
    """Type and message of the exception that ended a rank; it does not leave the machine."""
    stated: bool = False
    """Whether the job's own code has stated how it ended; then nobody judges it."""


@_message("ended")
@dataclass(frozen=True)
class Ended(Message):
    """The end was recorded."""


# Sidecar to rank.


@_message("failure")
@dataclass(frozen=True)
class Failure(Message):
    """The answer to a message that could not be read."""

    reason: str


@_message("flight_record_request")
@dataclass(frozen=True)
class FlightRecordRequest(Message):
    """Which collectives did this rank call last? To responders; they answer with `FlightRecord`."""

    starts_only: bool = False
    """Whether only the times are wanted. To find out where each call stands in the code takes a second, which a job
    that goes on must not lose."""


@_message("verdict_changed")
@dataclass(frozen=True)
class VerdictChanged(Message):
    """The verdict is another one now."""

    verdict: dict[str, Any]


@_message("alert_raised")
@dataclass(frozen=True)
class AlertRaised(Message):
    """The provider has raised or cleared an alert."""

    alert: dict[str, Any]


# Sidecar to the node's agent.


@_message("ticket_request")
@dataclass(frozen=True)
class TicketRequest(Message):
    """Answer: `TicketAnswer`."""


@_message("ticket_answer")
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


@_message("signals_request")
@dataclass(frozen=True)
class SignalsRequest(Message):
    """What do the signals of this node show? Answer: `SignalsAnswer`."""


@_message("signals_answer")
@dataclass(frozen=True)
class SignalsAnswer(Message):
    """Exact values, which stay on the node: the provider hears of trouble only."""

    readings: tuple[SignalReading, ...] = ()


@_message("forecast_request")
@dataclass(frozen=True)
class ForecastRequest(Message):
    """What is needed to forecast failures of this node? Answer: `ForecastAnswer`."""


@_message("forecast_answer")
@dataclass(frozen=True)
class ForecastAnswer(Message):
    """The hazard model of the provider, and the features of this node and of the devices of the job."""

    model: str = ""
    """JSON, as it was signed (`pharoah_protocol.hazard_model`); empty while there is none."""
    signature: str = ""
    """Hex."""
    features: dict[str, float] = field(default_factory=dict)
    """By name."""


@_message("node_state_request")
@dataclass(frozen=True)
class NodeStateRequest(Message):
    """Answer: `NodeStateAnswer`."""


@_message("node_state_answer")
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
