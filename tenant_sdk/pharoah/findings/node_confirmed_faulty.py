"""The finding `node-confirmed-faulty`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODE_CONFIRMED_FAULTY = FindingKind(
    code="node-confirmed-faulty",
    severity=FindingSeverity.WARN,
    text="the provider has confirmed that this node is slow or faulty",
    help="Micro-benchmarks confirmed an incident of this node, or work nearly always fails on it. Ask for another one.",
)
