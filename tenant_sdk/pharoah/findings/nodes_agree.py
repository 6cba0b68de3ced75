"""The finding `nodes-agree`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODES_AGREE = FindingKind(
    code="nodes-agree",
    severity=FindingSeverity.INFO,
    text="all {count} nodes of this job have the verdict {status}",
    help="Every node of the job has asked for itself, and all were answered the same.",
)
