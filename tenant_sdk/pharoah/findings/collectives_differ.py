"""The finding `collectives-differ`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

COLLECTIVES_DIFFER = FindingKind(
    code="collectives-differ",
    severity=FindingSeverity.WARN,
    text="{difference}",
    help="Ranks call different collectives at the same place of the order, so none of them can finish.",
)
