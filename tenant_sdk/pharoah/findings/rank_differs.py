"""The finding `rank-differs`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

RANK_DIFFERS = FindingKind(
    code="rank-differs",
    severity=FindingSeverity.WARN,
    text="{difference}",
    help="Ranks of one node run different steps. Compare the code, the versions and the environment of these ranks.",
)
