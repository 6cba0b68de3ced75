"""The finding `learned-slow`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_SLOW = FindingKind(
    code="learned-slow",
    severity=FindingSeverity.WARN,
    text="{subject} runs much slower here than on comparable nodes",
    help="Comparable runs took much longer per step here than elsewhere.",
)
