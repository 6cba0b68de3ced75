from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

SLOW_NODE = FindingKind(
    code="slow-node",
    severity=FindingSeverity.WARN,
    text="the provider has confirmed that this node is slow",
    help="An incident of the offered node is open. Another node is likely to be faster.",
)
