"""The finding `known-at-other-sizes`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

KNOWN_AT_OTHER_SIZES = FindingKind(
    code="known-at-other-sizes",
    severity=FindingSeverity.INFO,
    text="known at other sizes only: memory at this size was not judged",
    help="Runs with the same software and other sizes worked here.",
)
