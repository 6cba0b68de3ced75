"""The closed sets that tenant, provider and auditor share, as enums.

Every member is a string, so it can be printed, compared with what a user has typed, and written as JSON. A set that
crosses the wire as a number carries the number beside the string (`CodedEnum.code`). Codes are never reused: to retire
a member, delete it and note its code in the class.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

ENVIRONMENT = "environment"
"""The setting of a cell that names the software it runs in."""

if TYPE_CHECKING:
    from pharoah_archetypes.rungs import Rung as Rung


def __getattr__(name: str) -> object:
    # Training processes import this module. `import pharoah_archetypes` takes 50 ms (python -X importtime), so `Rung`
    # is loaded by those who use it.
    if name == "Rung":
        from pharoah_archetypes.rungs import Rung

        return Rung
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class CodedEnum(StrEnum):
    """A string with a number for the wire."""

    code: int

    def __new__(cls, value: str, code: int = -1) -> Self:
        """`value` is the string, `code` the number on the wire; the default lets type checkers accept `Cls(value)`."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.code = code
        return member

    @classmethod
    def from_code(cls, code: int) -> Self:
        """Raises ValueError for a code that this release does not know."""
        for member in cls:
            if member.code == code:
                return member
        raise ValueError(f"{cls.__name__}: code {code} is not known to this release")


class Severity(CodedEnum):
    """How strongly a learned row speaks against a job. Code 2 was `avoid`; nothing ever produced it."""

    OK = "ok", 0
    """Jobs like it ran."""
    WARN = "warn", 1
    """Jobs like it failed, but not always, or for a reason that may not apply."""
    BLOCK = "block", 3
    """All jobs like it failed, and comparable jobs did not."""
    INFO = "info", 4
    """Other jobs of its architecture failed, or nodes with a limit that this node may not have. It says nothing about
    the job itself."""

    @property
    def strength(self) -> int:
        """Larger for what speaks more strongly against a job."""
        return (Severity.OK, Severity.INFO, Severity.WARN, Severity.BLOCK).index(self)


class Outcome(CodedEnum):
    """The result of one cell of a campaign, and the result that a learned row predicts for a job."""

    OK = "ok", 0
    """It ran to its end."""
    MEMORY = "memory", 1
    """It ran out of memory."""
    ERROR = "error", 2
    """It raised an error."""
    NAN = "nan", 3
    """Its loss became NaN or infinite."""
    SLOW = "slow", 4
    """It ran much slower than comparable jobs. Set by learning; no cell reports it."""
    TIMEOUT = "timeout", 5
    """It did not end within its time limit."""
    CRASH = "crash", 6
    """Its process died."""
    HANG = "hang", 7
    """A rank waited for the others in vain."""
    WRONG = "wrong", 8
    """It computed other numbers than the same job elsewhere. Set by learning; no cell reports it."""
    LOST = "lost", 9
    """It vanished with its node. Set by the provider; no cell reports it."""
    OTHER = "other", 255
    """It failed in a way that a later release has a name for. Read from rows only; nothing writes it."""


MEASURED_OUTCOMES = (
    Outcome.OK,
    Outcome.MEMORY,
    Outcome.ERROR,
    Outcome.NAN,
    Outcome.TIMEOUT,
    Outcome.CRASH,
    Outcome.HANG,
)
"""The outcomes that a cell can report by itself."""


class Provenance(CodedEnum):
    """What the evidence of a learned row is."""

    CAMPAIGN = "campaign", 0
    """Cells that the provider has ordered and dry-run itself."""
    ORGANISATIONS = "organisations", 1
    """Ends of runs that tenants share under pseudonyms."""
    IMPORTED = "imported", 2
    """A portable table that another provider has signed."""
    OTHER = "other", 15
    """Something that a later release has a name for."""


class Grade(CodedEnum):
    """How strong the evidence of a learned row is."""

    ASSOCIATION = "association", 0
    """Counts, compared with whatever else ran."""
    MATCHED = "matched", 1
    """Counts, compared with trials that differ in one thing."""
    OTHER = "other", 15
    """Something that a later release has a name for."""


class Scope(StrEnum):
    """Which nodes a table of learned rows is about."""

    SERVER = "server"
    """Nodes of one context: hardware and configuration."""
    DEVICE = "device"
    """Nodes with one device model."""


class RowKind(StrEnum):
    """What the tokens of a learned row name."""

    ARCHETYPE = "arch"
    """An archetype with the features, sizes and versions of its rung."""
    BAND = "band"
    """One band of the sketch that near duplicates share."""
    PSEUDONYM = "name"
    """A job that tenants report under its pseudonym."""
    NODE = "node"
    """An archetype with the features of its rung on one node."""


class FindingSeverity(StrEnum):
    """How a finding changes a verdict."""

    INFO = "info"
    """The verdict stays as it is."""
    WARN = "warn"
    """The verdict is at least `warn`."""
    BLOCK = "block"
    """The verdict is `incompatible`."""


class VerdictStatus(StrEnum):
    """What is known about a job on a node before it starts."""

    COMPATIBLE = "compatible"
    """Jobs like it ran on such nodes."""
    WARN = "warn"
    """Jobs like it failed on such nodes more often than comparable jobs."""
    INCOMPATIBLE = "incompatible"
    """All jobs like it failed on such nodes."""
    UNKNOWN = "unknown"
    """Nothing was learned, or it could not be found out; the verdict has the reason."""
    PENDING = "pending"
    """The answer arrives after the job has started."""


class EndState(CodedEnum):
    """How a run ended. Only `failed` counts as a failure; every other state except `ok` censors the run."""

    OK = "ok", 1
    """The job did its work."""
    FAILED = "failed", 2
    """The job crashed, or its numbers did."""
    CANCELLED = "cancelled", 3
    """A person or a program of the tenant ended it."""
    PREEMPTED = "preempted", 4
    """The scheduler used the node for another job."""
    TIME_LIMIT = "time_limit", 5
    """The time of the job was over."""
    MAINTENANCE = "maintenance", 6
    """The node was taken out of service."""
    MOVED = "moved", 7
    """The job goes on elsewhere."""
    LOST = "lost", 8
    """Its sidecar or its node vanished. Set by the provider alone."""


class Attribution(CodedEnum):
    """Who or what caused a failure. What the user caused never counts against a node or a job."""

    UNKNOWN = "unknown", 0
    """There is no evidence, or it is contradictory."""
    USER = "user", 1
    """The job's own code or settings, or its owner."""
    SOFTWARE = "software", 2
    """The framework, a library or the driver."""
    NODE = "node", 3
    """The node's own hardware."""
    FABRIC = "fabric", 4
    """The network between nodes."""
    PLATFORM = "platform", 5
    """The provider's services around the node."""
    NEIGHBOUR = "neighbour", 6
    """Another job on the same node."""


class NodeClass(CodedEnum):
    """What reruns say about a node on which a job failed or was slow."""

    HEALTHY = "healthy", 0
    """Reruns fail on it as seldom as on other nodes."""
    TRANSIENT = "transient", 1
    """They fail now and then, whatever the work; to run the job again is enough."""
    GRAY = "gray", 2
    """They fail for certain work only; the node is to be avoided for that work."""
    PERSISTENT = "persistent", 3
    """They nearly always fail, whatever the work; the node is to be taken out of service."""


class NodeAction(CodedEnum):
    """What to do with a node because of its class."""

    KEEP = "keep", 0
    """It works as before."""
    AVOID = "avoid", 1
    """It is not to be used for certain work."""
    DRAIN = "drain", 2
    """It is to be taken out of service."""


class Purpose(StrEnum):
    """Why a micro-benchmark ran."""

    BASELINE = "baseline"
    """A campaign measures what a healthy node shows."""
    LEVEL = "level"
    """The provider measures what a node shows beside one particular job."""
    VALIDATION = "validation"
    """The provider checks a suspected node."""
    CHECK = "check"
    """The provider checks an idle node that nobody suspects."""


class ProbeStatus(CodedEnum):
    """What came of a micro-benchmark that the provider has ordered from a sidecar."""

    MEASURED = "measured", 1
    """It ran, and its repeats have times."""
    WRONG = "wrong", 2
    """It ran, and what it computed was wrong."""
    FAILED = "failed", 3
    """It did not run to its end."""
    REFUSED = "refused", 4
    """The tenant's own limits do not allow it now."""


class Resource(StrEnum):
    """What a micro-benchmark measures, a fault harms, and an alert is about."""

    COMPUTE = "compute"
    MEMORY_BANDWIDTH = "memory_bandwidth"
    MEMORY_CAPACITY = "memory_capacity"
    HOST_LINK = "host_link"
    """Copies between the memory of the host and that of a GPU."""
    NETWORK = "network"
    STORAGE = "storage"


class DeviceKind(StrEnum):
    """What a computation runs on. The members are the types of torch's devices."""

    CPU = "cpu"
    CUDA = "cuda"


class Role(StrEnum):
    """Who calls a service."""

    TENANT = "tenant"
    """A sidecar or a command of an organisation that runs jobs."""
    AGENT = "agent"
    """The provider's agent on one node."""
    OPERATOR = "operator"
    """A person or a tool of the provider."""


class Mode(StrEnum):
    """The tenant's setting `mode`."""

    ONLINE = "online"
    OFFLINE = "offline"
    DRY_RUN = "dryrun"
    DISABLED = "disabled"


class Privacy(StrEnum):
    """The tenant's setting `privacy`."""

    PRIVATE = "private"
    HASHED = "hashed"


class LaunchGate(StrEnum):
    """The tenant's setting `gate`: what an incompatible verdict does to the launch."""

    OFF = "off"
    WARN = "warn"
    BLOCK = "block"


NO_FAULT = "none"
"""In place of the name of a fault: nothing is done to the cell, which is a control run."""


class WorseDirection(StrEnum):
    """Which values of a signal speak for a failure."""

    HIGHER = "higher"
    LOWER = "lower"
