"""Messages between the ranks of a job and its sidecar: SEQPACKET, one message a packet.

Ranks send the classes from `Hello` to `End`. The sidecar sends the answers, and `FlightRecordRequest`,
`VerdictChanged` and `AlertRaised`, which come without a question. Ranks import this module: standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pharoah_protocol.local_messages import Message, message_class
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile
from pharoah_protocol.vocabulary import EndState

# Rank to sidecar.


@message_class("hello")
@dataclass(frozen=True)
class Hello(Message):
    """A rank has connected. Answer: `HelloAnswer`."""

    rank: int
    ranks: int = 1
    """Ranks on this node."""
    may_dry_run: bool = False
    """Whether this rank may dry-run the job and ask about it."""


@message_class("hello_answer")
@dataclass(frozen=True)
class HelloAnswer(Message):
    """The verdict so far, and whether the rank has to do something for it."""

    verdict: dict[str, Any]
    dry_run_needed: bool = False
    """Whether this rank is the one that has to dry-run the job; true for one rank of a node at most."""
    serves: bool = False
    """Whether the job is known to compute answers and to train nothing."""


@message_class("check")
@dataclass(frozen=True)
class Check(Message):
    """Ask the provider about the job. Answer: `CheckAnswer`."""

    fingerprint: str = ""
    """As JSON; empty when there was no dry run."""
    pending: str = ""
    """Why there was no dry run."""


@message_class("check_answer")
@dataclass(frozen=True)
class CheckAnswer(Message):
    """The verdict, and what is needed to judge the job's cost on this node."""

    verdict: dict[str, Any]
    profile: NodeProfile = NO_LIMITS
    """What the agent of this node states, as far as it can be used; without limits when no agent answers."""
    profile_dropped: tuple[str, ...] = ()
    """What the agent states and cannot be used, in words."""


@message_class("launch")
@dataclass(frozen=True)
class Launch(Message):
    """The job starts. Answer, if one is wanted: `LaunchAnswer`."""

    ranks: int
    """Ranks on this node."""


@message_class("launch_answer")
@dataclass(frozen=True)
class LaunchAnswer(Message):
    """The run is monitored under this id."""

    run_id: str


@message_class("run_started")
@dataclass(frozen=True)
class RunStarted(Message):
    """What the run's record begins with."""

    command: str
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    """The record's groups; empty when there was no dry run."""


@message_class("findings")
@dataclass(frozen=True)
class Findings(Message):
    """What this machine found out by itself before the launch."""

    findings: tuple[dict[str, Any], ...]
    step_seconds: float = 0.0
    """What a step should take on this node; 0 where what the node can do was not measured."""


@message_class("steps")
@dataclass(frozen=True)
class Steps(Message):
    """Optimizer steps of one rank since its last message."""

    rank: int
    durations: Sequence[int]
    """Nanoseconds, in order."""
    resident: int
    """Bytes of resident memory after the last step."""
    thread: int = 0
    """The kernel's number of the thread in which the last step ended (gettid(2)); 0 where that is not known."""


@message_class("capture")
@dataclass(frozen=True)
class Capture(Message):
    """One real step of one rank."""

    rank: int
    fingerprint: str
    """As JSON."""
    operators: Sequence[str] = ()


@message_class("register_responder")
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


@message_class("flight_record")
@dataclass(frozen=True)
class FlightRecord(Message):
    """The answer to `FlightRecordRequest`."""

    rank: int
    calls: tuple[CollectiveCall, ...]
    starts: tuple[CollectiveStart, ...] = ()
    """When its last collectives were called, oldest first."""


@message_class("listen")
@dataclass(frozen=True)
class Listen(Message):
    """This connection wants `VerdictChanged` and `AlertRaised`; the first `VerdictChanged` comes at once."""

    rank: int


@message_class("status")
@dataclass(frozen=True)
class Status(Message):
    """Answer: `StatusAnswer`."""


@message_class("status_answer")
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


@message_class("ask_validation")
@dataclass(frozen=True)
class AskValidation(Message):
    """The user asks that the provider validate this node."""


@message_class("end")
@dataclass(frozen=True)
class End(Message):
    """A rank, or the whole job, has ended. Answer: `Ended`."""

    state: EndState
    last: bool | None = None
    """Whether this ends the run; None lets the sidecar decide, which counts the ranks that are still connected."""
    status: int = 0
    """Exit code of the job's process, or -n for signal n, where the sender has waited for it."""
    asked_at: float | None = None
    """Unix seconds at which a signal first asked the job's process to end; None where none did, or nobody has seen."""
    error: str = ""
    """Type and message of the exception that ended a rank; it does not leave the machine."""
    stated: bool = False
    """Whether the job's own code has stated how it ended; then nobody judges it."""
    early: bool = False
    """Whether the sender has never trained: it may have been a rank, or a helper of one whose end nobody minds."""


@message_class("ended")
@dataclass(frozen=True)
class Ended(Message):
    """The end was recorded."""


# Sidecar to rank.


@message_class("failure")
@dataclass(frozen=True)
class Failure(Message):
    """The answer to a message that could not be read."""

    reason: str


@message_class("flight_record_request")
@dataclass(frozen=True)
class FlightRecordRequest(Message):
    """Which collectives did this rank call last? To responders; they answer with `FlightRecord`."""

    starts_only: bool = False
    """Whether only the times are wanted. To find out where each call stands in the code takes a second, which a job
    that goes on must not lose."""


@message_class("verdict_changed")
@dataclass(frozen=True)
class VerdictChanged(Message):
    """The verdict is another one now."""

    verdict: dict[str, Any]


@message_class("alert_raised")
@dataclass(frozen=True)
class AlertRaised(Message):
    """The provider has raised or cleared an alert."""

    alert: dict[str, Any]
