"""The finding `learned-hang`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_HANG = FindingKind(
    code="learned-hang",
    severity=FindingSeverity.WARN,
    text="{subject} hangs here",
    help="Ranks of comparable runs waited for each other in vain on nodes like this one.",
)
