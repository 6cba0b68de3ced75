"""The finding `waits-for-collectives`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

WAITS_FOR_COLLECTIVES = FindingKind(
    code="waits-for-collectives",
    severity=FindingSeverity.WARN,
    text="a step takes {time} on {place}: it waits for collectives",
    help="Communication takes longer than everything else in a step.",
)
