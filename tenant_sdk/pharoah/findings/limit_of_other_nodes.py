"""The finding `limit-of-other-nodes`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LIMIT_OF_OTHER_NODES = FindingKind(
    code="limit-of-other-nodes",
    severity=FindingSeverity.INFO,
    text="this job, or one that is up to twice as large, met a limit of other nodes (memory, disk, descriptors)",
    help="Runs failed because their nodes had too little of something. Whether this node has too little is not known.",
)
