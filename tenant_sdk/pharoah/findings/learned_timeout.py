"""The finding `learned-timeout`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_TIMEOUT = FindingKind(
    code="learned-timeout",
    severity=FindingSeverity.WARN,
    text="{subject} does not finish in time here",
    help="Comparable runs did not end within their time limit on nodes like this one.",
)
