"""The finding `outcome-not-shared`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

OUTCOME_NOT_SHARED = FindingKind(
    code="outcome-not-shared",
    severity=FindingSeverity.INFO,
    text="how this run ends is not shared: {reason}",
    help="PHAROAH_SHARE_OUTCOMES is set, and the pseudonym of the job could not be made.",
)
