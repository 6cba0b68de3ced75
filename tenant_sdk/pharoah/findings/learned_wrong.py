"""The finding `learned-wrong`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_WRONG = FindingKind(
    code="learned-wrong",
    severity=FindingSeverity.WARN,
    text="{subject} computes wrong numbers here",
    help="Comparable runs computed other numbers here than elsewhere, without an error.",
)
