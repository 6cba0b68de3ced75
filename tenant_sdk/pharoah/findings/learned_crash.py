"""The finding `learned-crash`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_CRASH = FindingKind(
    code="learned-crash",
    severity=FindingSeverity.WARN,
    text="{subject} crashes here",
    help="The processes of comparable runs died on nodes like this one.",
)
