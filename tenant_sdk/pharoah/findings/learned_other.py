"""The finding `learned-other`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_OTHER = FindingKind(
    code="learned-other",
    severity=FindingSeverity.WARN,
    text="{subject} fails here",
    help="Comparable runs failed here in a way that a later release of Pharoah has a name for.",
)
