"""The finding `documented-incompatible`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

DOCUMENTED_INCOMPATIBLE = FindingKind(
    code="documented-incompatible",
    severity=FindingSeverity.BLOCK,
    text="the vendor's documents say that this {consequence}: {question}",
    help="Software and hardware of this job do not go together, as their vendors document it. The evidence names the"
    " document. `pharoah documented` answers the same questions by hand.",
)
