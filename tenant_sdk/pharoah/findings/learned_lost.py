"""The finding `learned-lost`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_LOST = FindingKind(
    code="learned-lost",
    severity=FindingSeverity.WARN,
    text="{subject} vanishes here",
    help="Comparable runs vanished together with their nodes.",
)
