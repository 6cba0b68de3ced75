"""The finding `learned-nan`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_NAN = FindingKind(
    code="learned-nan",
    severity=FindingSeverity.WARN,
    text="{subject} gets NaN or infinite losses here",
    help="Comparable runs lost their numbers on nodes like this one.",
)
