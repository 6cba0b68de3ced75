"""The finding `learned-error`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_ERROR = FindingKind(
    code="learned-error",
    severity=FindingSeverity.WARN,
    text="{subject} fails with an error here",
    help="Comparable runs ended with an error on nodes like this one.",
)
