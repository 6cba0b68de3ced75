"""The finding `memory-at-other-sizes`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

MEMORY_AT_OTHER_SIZES = FindingKind(
    code="memory-at-other-sizes",
    severity=FindingSeverity.INFO,
    text="other sizes of this job run out of memory here; this size was not tried",
    help="Runs with the same software and other sizes ran out of memory.",
)
