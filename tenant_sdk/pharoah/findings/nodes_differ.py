"""The finding `nodes-differ`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODES_DIFFER = FindingKind(
    code="nodes-differ",
    severity=FindingSeverity.WARN,
    text="{groups}",
    help="The nodes of this job have different verdicts. Use nodes of one kind, or leave out those on which it fails.",
)
