"""The finding `rank-waits`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

RANK_WAITS = FindingKind(
    code="rank-waits",
    severity=FindingSeverity.WARN,
    text="{waiting}",
    help="No rank steps any more, and some ranks wait in a collective that others have not called.",
)
