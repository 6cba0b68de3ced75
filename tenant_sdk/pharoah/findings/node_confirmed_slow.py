"""The finding `node-confirmed-slow`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODE_CONFIRMED_SLOW = FindingKind(
    code="node-confirmed-slow",
    severity=FindingSeverity.WARN,
    text="the provider has confirmed that this node is slow",
    help="Micro-benchmarks confirmed an incident of this node, and it is still open. Ask for another node.",
)
