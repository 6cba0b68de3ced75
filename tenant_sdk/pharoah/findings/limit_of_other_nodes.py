"""The finding `limit-of-other-nodes`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LIMIT_OF_OTHER_NODES = FindingKind(
    code="limit-of-other-nodes",
    severity=FindingSeverity.INFO,
    text="this job met a limit of other nodes (memory, disk, descriptors); whether this node has it is not known",
    help="Runs of this job failed because their nodes had too little of something. This node states no such limit.",
)
